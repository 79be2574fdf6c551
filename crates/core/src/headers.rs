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

    /// The names of the limit headers, in the order of [`limit_headers`].
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            HeaderStyle::Draft11 => &["ratelimit-policy", "ratelimit"],
            HeaderStyle::Draft03 => &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            HeaderStyle::Draft06 => &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit-policy"],
            HeaderStyle::Draft07 => &["ratelimit", "ratelimit-policy"],
            HeaderStyle::XRateLimitEpoch | HeaderStyle::XRateLimitDelta => {
                &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
            }
            HeaderStyle::None => &[],
        }
    }
}

/// The `Retry-After` of a denied request in whole seconds, never early; `None` when waiting does not help.
pub fn retry_after_seconds(verdict: &Verdict) -> Option<u64> {
    if verdict.is_allowed() {
        return None;
    }
    verdict.retry_after().map(Span::as_secs_ceil)
}

/// The limit headers of a response, allowed or denied, without `Retry-After`. Only enforced rules that were asked
/// appear, and only those that do not keep out of them.
///
/// Styles with room for one limit show the binding one: the limiting rule of a denial, otherwise the rule with the
/// smallest share left. `now` is needed for resets given as points in time.
pub fn limit_headers(style: HeaderStyle, verdict: &Verdict, now: Timestamp) -> Vec<(&'static str, String)> {
    let Some(binding) = verdict.binding_in_headers() else {
        return Vec::new();
    };
    style.names().iter().copied().zip(values(style, verdict, binding, now)).collect()
}

/// The values of a style's headers, in the order of its names.
fn values(style: HeaderStyle, verdict: &Verdict, binding: &Row, now: Timestamp) -> Vec<String> {
    let limit = binding.decision.limit;
    let remaining = binding.decision.remaining;
    let reset = || binding.until_more().as_secs_ceil();
    let policies = || join(verdict, ", ", |row, text| unnamed_policy(row, now, text));
    let named = || join(verdict, ",", |row, text| policy_item(row, now, text));
    match style {
        HeaderStyle::None => Vec::new(),
        HeaderStyle::Draft11 => vec![named(), join(verdict, ",", state_item)],
        HeaderStyle::Draft03 => {
            vec![format!("{limit}, {}", policies()), remaining.to_string(), reset().to_string()]
        }
        HeaderStyle::Draft06 => vec![limit.to_string(), remaining.to_string(), reset().to_string(), policies()],
        HeaderStyle::Draft07 => vec![format!("limit={limit}, remaining={remaining}, reset={}", reset()), policies()],
        HeaderStyle::XRateLimitEpoch => {
            let reset = (now + binding.until_more()).as_micros().div_ceil(1_000_000);
            vec![limit.to_string(), remaining.to_string(), reset.to_string()]
        }
        HeaderStyle::XRateLimitDelta => vec![limit.to_string(), remaining.to_string(), reset().to_string()],
    }
}

/// An item for each enforced rule that was asked. Written to one text, because this happens for every response.
fn join(verdict: &Verdict, separator: &str, item: impl Fn(&Row, &mut String)) -> String {
    let is_shown = |row: &&Row| row.charge.rule.is_in_headers() && !row.is_unasked();
    let mut text = String::with_capacity(48);
    for row in verdict.rows().iter().filter(is_shown) {
        if !text.is_empty() {
            text.push_str(separator);
        }
        item(row, &mut text);
    }
    text
}

/// A rule's name needs no escaping in a structured field string: names are checked when a rule is built.
fn policy_item(row: &Row, now: Timestamp, into: &mut String) {
    push_name(row, into);
    push_number(";q=", row.decision.limit.into(), into);
    match window(row.charge.quota(), now) {
        Some(window) => push_number(";w=", window, into),
        None => into.push_str(";qu=\"concurrent-requests\""),
    }
}

fn push_name(row: &Row, into: &mut String) {
    for part in ["\"", row.charge.rule.name(), "\""] {
        into.push_str(part);
    }
}

/// Digits by hand: `write!` costs several times as much, and headers are written for every response.
fn push_number(before: &str, number: u64, into: &mut String) {
    into.push_str(before);
    let (mut digits, mut start, mut rest) = ([0_u8; 20], 20, number);
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.push_str(std::str::from_utf8(&digits[start..]).unwrap_or_default());
}

/// The older drafts list limits and windows without names.
fn unnamed_policy(row: &Row, now: Timestamp, into: &mut String) {
    push_number("", row.decision.limit.into(), into);
    if let Some(window) = window(row.charge.quota(), now) {
        push_number(";w=", window, into);
    }
}

fn state_item(row: &Row, into: &mut String) {
    push_name(row, into);
    push_number(";r=", row.decision.remaining.into(), into);
    match row.until_more().as_secs_ceil() {
        0 => {}
        seconds => push_number(";t=", seconds, into),
    }
}

/// The seconds over which the limit is given out: the window of this moment, or what a bucket takes to fill.
fn window(quota: &Quota, now: Timestamp) -> Option<u64> {
    if quota.calendar().is_some() {
        let window = quota.window_at(now);
        return Some(window.end.since(window.start).as_secs_ceil());
    }
    match quota.algorithm() {
        Algorithm::Concurrency => None,
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => Some(quota.full_refill().as_secs_ceil()),
        _ => Some(quota.period().as_secs_ceil()),
    }
}
