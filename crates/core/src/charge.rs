//! One rule applied to one request: which bucket, under which quota, at what cost.
//!
//! Nearly every charge uses its rule's own quota and has no exception; then it carries neither. [`Terms`] are there
//! only where something else applies. So code that decides must ask the charge for its quota, never the rule.

use std::sync::Arc;

use crate::exception::Exception;
use crate::key::Key;
use crate::quota::Quota;
use crate::rule::{LeaseSize, Rule};
use crate::rule_spec::Enforcement;
use crate::terms::Terms;

/// One rule applied to one request.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The rule.
    pub rule: Arc<Rule>,
    /// Which of the rule's buckets.
    pub key: Key,
    /// The request's cost times the rule's.
    pub cost: u32,
    enforcement: Enforcement,
    terms: Option<Arc<Terms>>,
}

/// A bucket and the quota that reads it.
#[derive(Clone, Copy, Debug)]
pub struct BucketRef<'b> {
    /// The rule's name.
    pub rule: &'b str,
    /// Which of its buckets.
    pub key: &'b Key,
    /// Its quota.
    pub quota: &'b Quota,
}

impl Charge {
    /// A charge under the rule's own quota.
    #[inline]
    pub fn new(rule: Arc<Rule>, key: Key, cost: u32) -> Charge {
        let enforcement = rule.mode();
        Charge { rule, key, cost, enforcement, terms: None }
    }

    /// The same charge at another cost.
    #[must_use]
    pub fn with_cost(self, cost: u32) -> Charge {
        Charge { cost, ..self }
    }

    /// What it means for the request when this charge does not fit: as the rule's mode says, or less.
    #[inline]
    pub fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// The same charge without a say in whether the request passes, as of a shadow rule: for one of several rules with
    /// `mode: quota`, when another one is known to have room.
    #[must_use]
    pub fn without_say(self) -> Charge {
        Charge { enforcement: Enforcement::Shadow, ..self }
    }

    /// The same charge with the say that its rule gives it.
    #[must_use]
    pub fn with_say(self) -> Charge {
        Charge { enforcement: self.rule.mode(), ..self }
    }

    /// The same charge on other terms.
    #[must_use]
    pub fn on(self, terms: Arc<Terms>) -> Charge {
        Charge { terms: Some(terms), ..self }
    }

    /// The same charge under another quota.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Charge {
        self.on(Arc::new(Terms::new(quota)))
    }

    /// The same charge without an exception; the quota stays.
    pub(crate) fn on_own_terms(self) -> Charge {
        match &self.terms {
            Some(terms) if terms.exception.is_some() => {
                let terms = Terms { exception: None, ..(**terms).clone() };
                self.on(Arc::new(terms))
            }
            _ => self,
        }
    }

    /// The terms, if they differ from the rule's.
    #[inline]
    pub fn terms(&self) -> Option<&Arc<Terms>> {
        self.terms.as_ref()
    }

    /// The quota in force for this charge.
    #[inline]
    pub fn quota(&self) -> &Quota {
        match &self.terms {
            None => self.rule.quota(),
            Some(terms) => &terms.quota,
        }
    }

    /// The exception that is in force for this charge.
    #[inline]
    pub fn exception(&self) -> Option<&Arc<Exception>> {
        self.terms.as_ref()?.exception.as_ref()
    }

    /// Whether tokens are taken from a shared store ahead of use.
    #[inline]
    pub fn lease(&self) -> Option<LeaseSize> {
        match &self.terms {
            None => self.rule.lease(),
            Some(terms) => terms.lease,
        }
    }

    /// The bucket that is charged.
    #[inline]
    pub fn bucket(&self) -> BucketRef<'_> {
        BucketRef { rule: self.rule.name(), key: &self.key, quota: self.quota() }
    }

    /// Whether both have the same rule (not only its name) and the same terms.
    pub fn has_terms_of(&self, other: &Charge) -> bool {
        let terms = |charge: &Charge| charge.terms.as_ref().map(Arc::as_ptr);
        Arc::ptr_eq(&self.rule, &other.rule) && terms(self) == terms(other)
    }
}
