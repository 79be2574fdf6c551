//! What applies to a charge instead of its rule's settings.

use std::sync::Arc;

use crate::exception::{Exception, ExceptionKind, Grant};
use crate::quota::Quota;
use crate::rule::{LeaseSize, Rule};
use crate::time::Timestamp;

/// What applies to a charge instead of its rule's settings: a share of the limit, a caller's own limit, an exception.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub(crate) quota: Quota,
    pub(crate) lease: Option<LeaseSize>,
    pub(crate) exception: Option<Arc<Exception>>,
}

impl Terms {
    /// Another quota. It has no leases: leased tokens belong to the rule's own quota.
    pub fn new(quota: Quota) -> Terms {
        Terms { quota, lease: None, exception: None }
    }

    /// The same with another quota.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Terms {
        Terms { quota, lease: None, exception: self.exception.clone() }
    }

    /// The quota under an exception, and the exception itself while it is in force.
    fn of(rule: &Rule, quota: Quota, exception: Option<Arc<Exception>>) -> Terms {
        Terms { quota, lease: rule.lease(), exception }
    }

    /// The quota.
    #[inline]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }
}

impl Exception {
    /// The terms for this key of a rule at `now`; `None` if the rule's own apply. A grant that has ended leaves a
    /// quota that remembers it, so that missing tokens stay missing; a grant that does not fit the rule changes
    /// nothing.
    pub fn terms(self: &Arc<Self>, rule: &Rule, now: Timestamp) -> Option<Terms> {
        let ended = self.until.filter(|until| *until <= now);
        match (&self.kind, ended) {
            (ExceptionKind::Grant(grant), None) => {
                Some(Terms::of(rule, self.granted(grant, rule)?, Some(self.clone())))
            }
            (ExceptionKind::Grant(grant), Some(until)) => {
                let quota = rule.quota().in_place_of(&self.granted(grant, rule)?, until);
                Some(Terms::of(rule, quota, None))
            }
            (ExceptionKind::Block | ExceptionKind::Allow, None) => {
                Some(Terms::of(rule, *rule.quota(), Some(self.clone())))
            }
            (ExceptionKind::Block | ExceptionKind::Allow, Some(_)) => None,
        }
    }

    fn granted(&self, grant: &Grant, rule: &Rule) -> Option<Quota> {
        let before = match &self.former {
            Some((former, since)) => former.quota(rule).ok()?.in_place_of(rule.quota(), *since),
            None => *rule.quota(),
        };
        Some(grant.quota(rule).ok()?.in_place_of(&before, self.since))
    }
}
