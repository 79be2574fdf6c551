//! One record of the audit.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Enforcement, Timestamp};

use crate::moment::{self, Moment};

/// A request that a rule denied, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Violation {
    /// Increasing; a place to continue from.
    pub(crate) id: u64,
    /// When; for several denials, the first.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Moment")]
    pub(crate) at: Timestamp,
    /// The rule that denied.
    pub(crate) rule: Arc<str>,
    /// Which of the rule's buckets; a secret by its fingerprint.
    pub(crate) key: String,
    /// The request's `user_id`, if it had one.
    pub(crate) user_id: Option<String>,
    /// The request's `ip`, if it had one.
    pub(crate) ip: Option<String>,
    /// Method and path, as far as the request had them.
    pub(crate) endpoint: Option<String>,
    /// What the request would have been charged.
    pub(crate) cost: u32,
    /// Whole tokens that were left.
    pub(crate) remaining: u32,
    /// Milliseconds after which it would have passed; null when it never can.
    pub(crate) retry_after_ms: Option<u64>,
    /// How many denials of this key it stands for: one, or all of a second.
    pub(crate) count: u64,
    /// Whether the rule is in shadow mode: the request was not denied by it.
    pub(crate) shadow: bool,
    /// The rule's mode: `shadow` and `annotate` let the request pass, and `quota` does if another quota has room.
    pub(crate) mode: Enforcement,
    /// The exception that blocks the key, if that denied the request rather than the limit.
    pub(crate) blocked: Option<Blocked>,
    /// The process that decided.
    pub(crate) instance: Arc<str>,
}

/// Why a key is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Blocked {
    /// Until when; null when it has no end.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Option<Moment>")]
    pub(crate) until: Option<Timestamp>,
    /// By whom, if that is known.
    pub(crate) by: Option<String>,
}

#[cfg(test)]
impl Violation {
    /// A violation to be modified by a test.
    pub(crate) fn example() -> Violation {
        Violation {
            id: 0,
            at: Timestamp::from_micros(1_767_225_600_000_000),
            rule: "login".into(),
            key: "203.0.113.9".into(),
            user_id: None,
            ip: Some("203.0.113.9".into()),
            endpoint: Some("POST /login".into()),
            cost: 1,
            remaining: 0,
            retry_after_ms: Some(1_500),
            count: 1,
            shadow: false,
            mode: Enforcement::Enforce,
            blocked: None,
            instance: "here:1".into(),
        }
    }
}
