//! How an upstream learns of soft limits (`mode: annotate`) that a request is over.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tollkeeper_core::{Annotation, Span, Verdict};

/// The header of a request that is over a soft limit, for its upstream: a structured list (RFC 9651) with an item for each rule,
/// such as `"monthly";over=3;limit=1000;t=86400`: how much of the cost did not fit, and seconds until it would have fit.
///
/// A proxy must strip this header from client requests.
pub const OVER_LIMIT: HeaderName = HeaderName::from_static("tollkeeper-over-limit");

/// The value of [`OVER_LIMIT`]; `None` if the request is over none.
///
/// ```
/// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule, http::over_limit};
///
/// let policy = Policy::new([Rule::new("soft").key("global").limit("1/min").annotate()])?;
/// let limiter = Limiter::new(policy, MemoryStore::new());
/// assert_eq!(over_limit(&limiter.try_check(&Descriptor::default())?), None);
/// let over = limiter.try_check(&Descriptor::default())?;
/// assert!(over.is_allowed());
/// assert_eq!(over_limit(&over).unwrap(), "\"soft\";over=1;limit=1;t=60");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn over_limit(verdict: &Verdict) -> Option<HeaderValue> {
    let mut list = String::new();
    for Annotation { rule, limit, over_by, retry_after } in verdict.annotations() {
        let separator = if list.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail, and a rule's name needs no escaping.
        let _ = write!(list, "{separator}\"{rule}\";over={over_by};limit={limit}");
        if let Some(wait) = retry_after {
            let _ = write!(list, ";t={}", wait.as_secs_ceil());
        }
    }
    HeaderValue::try_from(list).ok().filter(|value| !value.is_empty())
}

/// The soft limits that a request is over, as an extension of the request that the `tower` layer passes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverLimit(pub Vec<Over>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Over {
    /// The rule's name.
    pub rule: String,
    /// The burst of a bucket, or N.
    pub limit: u32,
    /// How much of the request's cost did not fit.
    pub over_by: u32,
    /// When the request would have fit; `None` if never.
    pub retry_after: Option<Duration>,
}

impl OverLimit {
    /// Of a verdict; `None` if the request is over none.
    pub fn of(verdict: &Verdict) -> Option<OverLimit> {
        let over = verdict.annotations().map(|Annotation { rule, limit, over_by, retry_after }| Over {
            rule: rule.to_string(),
            limit,
            over_by,
            retry_after: retry_after.map(Span::as_duration),
        });
        Some(OverLimit(over.collect())).filter(|over| !over.0.is_empty())
    }
}
