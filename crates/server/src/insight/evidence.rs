//! The numbers behind a finding.

use schemars::JsonSchema;
use serde::Serialize;

/// What is known about a rule's denials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Evidence {
    /// The period covered, in seconds: between half an hour and an hour once the service has run for that long.
    pub(crate) seconds: u64,
    /// Requests that the rule applied to.
    pub(crate) requests: u64,
    /// Those that its limit denied, or would have denied if `shadow`. Those of keys that are blocked now are left out.
    pub(crate) denied: u64,
    /// Those of keys that an exception blocks, which say nothing about the limit.
    pub(crate) blocked: u64,
    /// How long ago the last of these denials was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(crate) last_denied_seconds_ago: Option<u64>,
    /// Different keys that were not blocked: an estimate unless `exact`.
    pub(crate) keys: u64,
    /// Different keys that were denied: an estimate unless `exact`.
    pub(crate) keys_denied: u64,
    /// The share of keys that were denied at least once, 0 to 1.
    pub(crate) share_of_keys_denied: f64,
    /// Whether keys were counted one by one; otherwise they are estimated from a sample of 512.
    pub(crate) exact: bool,
    /// The fewest keys that cause four fifths of the denials, if ten are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Few")]
    pub(crate) few: Option<Few>,
    /// Of the denied keys that came back, the share that mostly retried before their wait was over, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub(crate) share_hammering: Option<f64>,
    /// The lowest round limit that would have denied at most one key in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Enough")]
    pub(crate) enough: Option<Enough>,
    /// All requests share one key.
    #[serde(skip)]
    pub(crate) one_key: bool,
    /// The rule is in shadow mode, and denies nobody.
    pub(crate) shadow: bool,
    /// The rule limits requests at the same time, so waits and rates say nothing about it.
    #[serde(skip)]
    pub(crate) slots: bool,
}

/// A few keys that cause most denials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Few {
    /// How many.
    pub(crate) keys: u64,
    /// The share of denials that they cause at least, 0 to 1.
    pub(crate) share: f64,
    /// How many of them mostly retry before their wait is over.
    pub(crate) hammering: u64,
    /// How many of them mostly wait.
    pub(crate) waiting: u64,
}

/// A limit that would have been high enough: the requests were run against these numbers, as they came and as they
/// would have come if nobody had waited.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Enough {
    /// In the rule's own unit, such as `120/min`.
    pub(crate) limit: String,
    /// The burst that belongs to it; null for algorithms without one.
    pub(crate) burst: Option<u32>,
    /// The same as a text: `120/min with burst 40`; the burst is left out where it is the limit's own.
    pub(crate) written: String,
    /// How many times the limit in force.
    pub(crate) times: f64,
    /// The share of keys that it would have denied, 0 to 1.
    pub(crate) share_of_keys_denied: f64,
}
