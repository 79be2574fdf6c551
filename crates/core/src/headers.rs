//! Limit headers. Names and parameters still change in the IETF draft, so every style is written here and nowhere
//! else.

use serde::{Deserialize, Serialize};

use crate::quota::{Algorithm, Quota};
use crate::time::{Span, Timestamp};
use crate::verdict::{Row, Verdict};

/// Which convention the limit headers follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `RateLimit-Policy: "name";q=100;w=60` and `RateLimit: "name";r=50;t=30`: one policy per rule.
    #[default]
    #[serde(rename = "draft-11")]
    Draft11,
    /// `RateLimit-Limit: 100, 100;w=60`, `RateLimit-Remaining`, `RateLimit-Reset` in seconds.
    #[serde(rename = "draft-03")]
    Draft03,
    /// `RateLimit-Limit: 100`, `-Remaining`, `-Reset` in seconds, `RateLimit-Policy: 100;w=60`.
    #[serde(rename = "draft-06")]
    Draft06,
    /// `RateLimit: limit=100, remaining=50, reset=30` and `RateLimit-Policy: 100;w=60`.
    #[serde(rename = "draft-07")]
    Draft07,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` as seconds since the epoch.
    #[serde(rename = "x-ratelimit-epoch")]
    XRateLimitEpoch,
    /// The same with the reset in seconds from now.
    #[serde(rename = "x-ratelimit-delta")]
    XRateLimitDelta,
    /// No limit headers; `Retry-After` stays.
    #[serde(rename = "none")]
    None,
}

impl HeaderStyle {
    /// Every style, with its name in the configuration.
    pub const ALL: [(HeaderStyle, &'static str); 7] = [
        (HeaderStyle::Draft11, "draft-11"),
        (HeaderStyle::Draft03, "draft-03"),
        (HeaderStyle::Draft06, "draft-06"),
        (HeaderStyle::Draft07, "draft-07"),
        (HeaderStyle::XRateLimitEpoch, "x-ratelimit-epoch"),
        (HeaderStyle::XRateLimitDelta, "x-ratelimit-delta"),
        (HeaderStyle::None, "none"),
    ];
}

/// The `Retry-After` of a denied request in whole seconds, never early; `None` when waiting does not help.
pub fn retry_after_seconds(verdict: &Verdict) -> Option<u64> {
    if verdict.is_allowed() {
        return None;
    }
    verdict.retry_after().map(Span::as_secs_ceil)
}

/// The limit headers of a response, allowed or denied, without `Retry-After`. Only enforced rules that were asked
/// appear.
///
/// Styles with room for one limit show the binding one: the limiting rule of a denial, otherwise the rule with the
/// smallest share left. `now` is needed for resets given as points in time.
pub fn limit_headers(style: HeaderStyle, verdict: &Verdict, now: Timestamp) -> Vec<(&'static str, String)> {
    let is_told = |row: &&Row| row.charge.rule.is_enforced() && !row.is_unasked();
    let enforced: Vec<&Row> = verdict.rows().iter().filter(is_told).collect();
    let Some(binding) = verdict.binding() else {
        return Vec::new();
    };
    let limit = binding.decision.limit;
    let remaining = binding.decision.remaining.to_string();
    let reset = binding.until_more().as_secs_ceil();
    let policies = || enforced.iter().map(|row| unnamed_policy(row)).collect::<Vec<_>>().join(", ");
    match style {
        HeaderStyle::None => Vec::new(),
        HeaderStyle::Draft11 => {
            vec![("ratelimit-policy", join(&enforced, policy_item)), ("ratelimit", join(&enforced, state_item))]
        }
        HeaderStyle::Draft03 => vec![
            ("ratelimit-limit", format!("{limit}, {}", policies())),
            ("ratelimit-remaining", remaining),
            ("ratelimit-reset", reset.to_string()),
        ],
        HeaderStyle::Draft06 => vec![
            ("ratelimit-limit", limit.to_string()),
            ("ratelimit-remaining", remaining),
            ("ratelimit-reset", reset.to_string()),
            ("ratelimit-policy", policies()),
        ],
        HeaderStyle::Draft07 => vec![
            ("ratelimit", format!("limit={limit}, remaining={remaining}, reset={reset}")),
            ("ratelimit-policy", policies()),
        ],
        HeaderStyle::XRateLimitEpoch => {
            let reset = (now + binding.until_more()).as_micros().div_ceil(1_000_000);
            x_ratelimit(limit, remaining, reset)
        }
        HeaderStyle::XRateLimitDelta => x_ratelimit(limit, remaining, reset),
    }
}

fn x_ratelimit(limit: u32, remaining: String, reset: u64) -> Vec<(&'static str, String)> {
    vec![
        ("x-ratelimit-limit", limit.to_string()),
        ("x-ratelimit-remaining", remaining),
        ("x-ratelimit-reset", reset.to_string()),
    ]
}

fn join(rows: &[&Row], item: impl Fn(&Row) -> String) -> String {
    rows.iter().map(|row| item(row)).collect::<Vec<_>>().join(",")
}

/// A rule's name needs no escaping in a structured field string: names are checked when a rule is built.
fn policy_item(row: &Row) -> String {
    let rule = &row.charge.rule;
    let limit = row.decision.limit;
    match window(row.charge.quota()) {
        Some(window) => format!("\"{}\";q={limit};w={window}", rule.name()),
        None => format!("\"{}\";q={limit};qu=\"concurrent-requests\"", rule.name()),
    }
}

/// The older drafts list limits and windows without names.
fn unnamed_policy(row: &Row) -> String {
    let limit = row.decision.limit;
    match window(row.charge.quota()) {
        Some(window) => format!("{limit};w={window}"),
        None => limit.to_string(),
    }
}

fn state_item(row: &Row) -> String {
    let (name, remaining) = (row.charge.rule.name(), row.decision.remaining);
    match row.until_more().as_secs_ceil() {
        0 => format!("\"{name}\";r={remaining}"),
        seconds => format!("\"{name}\";r={remaining};t={seconds}"),
    }
}

/// The seconds over which the limit is given out: the window, or what a bucket takes to fill.
fn window(quota: &Quota) -> Option<u64> {
    match quota.algorithm() {
        Algorithm::Concurrency => None,
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => Some(quota.full_refill().as_secs_ceil()),
        _ => Some(quota.period().as_secs_ceil()),
    }
}
