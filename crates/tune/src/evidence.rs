//! The numbers behind a finding.

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::Enforcement;

/// What is known about a rule's denials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// The period covered, in seconds: between half an hour and an hour once the service has run for that long.
    pub seconds: u64,
    /// Requests that the rule applied to.
    pub requests: u64,
    /// Those that its limit denied, or would have denied if its mode let it. Those of keys that are blocked now are left out.
    pub denied: u64,
    /// Those of keys that an exception blocks, which say nothing about the limit.
    pub blocked: u64,
    /// How long ago the last of these denials was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub last_denied_seconds_ago: Option<u64>,
    /// Different keys that were not blocked: an estimate unless `exact`.
    pub keys: u64,
    /// Different keys that were denied: an estimate unless `exact`.
    pub keys_denied: u64,
    /// The share of keys that were denied at least once, 0 to 1.
    pub share_of_keys_denied: f64,
    /// Whether keys were counted one by one; otherwise they are estimated from a sample of 512.
    pub exact: bool,
    /// The fewest keys that cause four fifths of the denials, if ten are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Few")]
    pub few: Option<Few>,
    /// Of the denied keys that came back, the share that mostly retried before their wait was over, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub share_hammering: Option<f64>,
    /// The lowest round limit that would have denied at most one key in a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Enough")]
    pub enough: Option<Enough>,
    /// All requests share one key.
    #[serde(skip)]
    pub one_key: bool,
    /// The rule's mode: in `shadow` it denies nobody, with `annotate` requests over the limit pass and are marked, and over a `quota`
    /// they pass if another one has room.
    pub mode: Enforcement,
    /// The rule limits requests at the same time, so waits and rates say nothing about it.
    #[serde(skip)]
    pub slots: bool,
    /// What the period is.
    #[serde(skip)]
    pub period: Period,
}

/// Where evidence comes from, which decides how its time is worded. Time either ends now or has passed, so there is no third.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Period {
    /// The time up to now: "in the last hour".
    #[default]
    UpToNow,
    /// A log: "in 26 hours".
    OfLog,
}

/// A few keys that cause most denials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Few {
    /// How many.
    pub keys: u64,
    /// The share of denials that they cause at least, 0 to 1.
    pub share: f64,
    /// How many of them mostly retry before their wait is over.
    pub hammering: u64,
    /// How many of them mostly wait.
    pub waiting: u64,
    /// How many of them look like bots and scanners by what they ask for; only a log tells.
    #[serde(skip)]
    pub suspects: Option<u64>,
}

/// A key that was denied, as far as [`Few::explaining`] is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// How many denials it certainly had.
    pub certain: u64,
    /// Whether it mostly retries before its wait is over, if that is known.
    pub hammers: Option<bool>,
    /// Whether it looks like a bot, if that is known.
    pub is_suspect: Option<bool>,
}

impl Few {
    /// More keys than this are not few.
    pub const MOST: usize = 10;
    /// The share of denials that they have to explain.
    pub const EXPLAINED: f64 = 0.8;

    /// The fewest keys that certainly explain this share of all denials; `keys` are those with most denials first.
    pub fn explaining(keys: impl IntoIterator<Item = Denied>, denied: u64, explained: f64) -> Option<Few> {
        let mut few = Few { keys: 0, share: 0.0, hammering: 0, waiting: 0, suspects: None };
        let mut theirs = 0;
        for one in keys.into_iter().take(Few::MOST) {
            theirs += one.certain;
            few.keys += 1;
            few.share = theirs as f64 / denied as f64;
            few.hammering += u64::from(one.hammers == Some(true));
            few.waiting += u64::from(one.hammers == Some(false));
            if let Some(is_suspect) = one.is_suspect {
                *few.suspects.get_or_insert(0) += u64::from(is_suspect);
            }
            if few.share >= explained {
                return Some(few);
            }
        }
        None
    }
}

/// A limit that would have been high enough: the requests were run against these numbers, as they came and as they
/// would have come if nobody had waited.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Enough {
    /// In the rule's own unit, such as `120/min`.
    pub limit: String,
    /// The burst that belongs to it; null for algorithms without one.
    pub burst: Option<u32>,
    /// The same as a text: `120/min with burst 40`; the burst is left out where it is the limit's own.
    pub written: String,
    /// How many times the limit in force.
    pub times: f64,
    /// The share of keys that it would have denied, 0 to 1.
    pub share_of_keys_denied: f64,
}
