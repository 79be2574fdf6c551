//! Limit headers. Names and parameters still change in the IETF draft, so every style is written here and nowhere
//! else.

use std::fmt;

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

    /// What each of them says.
    const fn values(self) -> &'static [Value] {
        match self {
            HeaderStyle::Draft11 => &[Value::NamedPolicies, Value::NamedStates],
            HeaderStyle::Draft03 => &[Value::LimitAndPolicies, Value::Remaining, Value::ResetAfter],
            HeaderStyle::Draft06 => &[Value::Limit, Value::Remaining, Value::ResetAfter, Value::Policies],
            HeaderStyle::Draft07 => &[Value::Summary, Value::Policies],
            HeaderStyle::XRateLimitEpoch => &[Value::Limit, Value::Remaining, Value::ResetAt],
            HeaderStyle::XRateLimitDelta => &[Value::Limit, Value::Remaining, Value::ResetAfter],
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
    let written = |header: LimitHeader<'_>| {
        let mut value = String::with_capacity(48 * verdict.rows().len());
        // Writing to a string cannot fail.
        let _ = header.write(&mut value);
        (header.name, value)
    };
    each_limit_header(style, verdict, now).map(written).collect()
}

/// The same, not yet formatted, for callers that write into their own buffer.
pub fn each_limit_header(
    style: HeaderStyle,
    verdict: &Verdict,
    now: Timestamp,
) -> impl Iterator<Item = LimitHeader<'_>> {
    let shown = verdict.binding_in_headers().into_iter();
    shown.flat_map(move |binding| {
        let named = style.names().iter().copied().zip(style.values());
        named.map(move |(name, value)| LimitHeader { name, value: *value, verdict, binding, now })
    })
}

/// A limit header; its value is what it displays.
#[derive(Clone, Copy, Debug)]
pub struct LimitHeader<'v> {
    /// Its name, in lower case.
    pub name: &'static str,
    value: Value,
    verdict: &'v Verdict,
    binding: &'v Row,
    now: Timestamp,
}

/// What a header says.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// `"name";q=100;w=60` for each rule.
    NamedPolicies,
    /// `"name";r=50;t=30` for each rule.
    NamedStates,
    /// `100;w=60` for each rule.
    Policies,
    LimitAndPolicies,
    /// `limit=100, remaining=50, reset=30`.
    Summary,
    Limit,
    Remaining,
    /// In seconds.
    ResetAfter,
    /// In seconds since the epoch.
    ResetAt,
}

impl LimitHeader<'_> {
    /// Appends the value to a text: cheaper than displaying it.
    pub fn write(&self, into: &mut impl fmt::Write) -> fmt::Result {
        let LimitHeader { value, verdict, binding, now, .. } = *self;
        let limit = u64::from(binding.decision.limit);
        let remaining = u64::from(binding.decision.remaining);
        let reset = || binding.until_more().as_secs_ceil();
        match value {
            Value::NamedPolicies => write_rules(verdict, ",", into, |row, into| write_policy(row, now, into)),
            Value::NamedStates => write_rules(verdict, ",", into, write_state),
            Value::Policies => write_rules(verdict, ", ", into, |row, into| write_unnamed_policy(row, now, into)),
            Value::LimitAndPolicies => {
                write_number("", limit, into)?;
                into.write_str(", ")?;
                write_rules(verdict, ", ", into, |row, into| write_unnamed_policy(row, now, into))
            }
            Value::Summary => {
                write_number("limit=", limit, into)?;
                write_number(", remaining=", remaining, into)?;
                write_number(", reset=", reset(), into)
            }
            Value::Limit => write_number("", limit, into),
            Value::Remaining => write_number("", remaining, into),
            Value::ResetAfter => write_number("", reset(), into),
            Value::ResetAt => write_number("", (now + binding.until_more()).as_micros().div_ceil(1_000_000), into),
        }
    }
}

impl fmt::Display for LimitHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

/// An item for each enforced rule that was asked.
fn write_rules<W: fmt::Write>(
    verdict: &Verdict,
    separator: &str,
    into: &mut W,
    item: impl Fn(&Row, &mut W) -> fmt::Result,
) -> fmt::Result {
    let shown = verdict.rows().iter().filter(|row| row.charge.rule.is_in_headers() && !row.is_unasked());
    for (index, row) in shown.enumerate() {
        if index > 0 {
            into.write_str(separator)?;
        }
        item(row, into)?;
    }
    Ok(())
}

/// A rule's name needs no escaping in a structured field string: names are checked when a rule is built.
fn write_policy(row: &Row, now: Timestamp, into: &mut impl fmt::Write) -> fmt::Result {
    write_name(row, into)?;
    write_number(";q=", row.decision.limit.into(), into)?;
    match window(row.charge.quota(), now) {
        Some(window) => write_number(";w=", window, into),
        None => into.write_str(";qu=\"concurrent-requests\""),
    }
}

fn write_name(row: &Row, into: &mut impl fmt::Write) -> fmt::Result {
    ["\"", row.charge.rule.name(), "\""].into_iter().try_for_each(|part| into.write_str(part))
}

/// Digits by hand: `write!` costs several times as much, and headers are written for every response.
fn write_number(before: &str, number: u64, into: &mut impl fmt::Write) -> fmt::Result {
    into.write_str(before)?;
    let (mut digits, mut start, mut rest) = ([0_u8; 20], 20, number);
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.write_str(std::str::from_utf8(&digits[start..]).unwrap_or_default())
}

/// The older drafts list limits and windows without names.
fn write_unnamed_policy(row: &Row, now: Timestamp, into: &mut impl fmt::Write) -> fmt::Result {
    write_number("", row.decision.limit.into(), into)?;
    match window(row.charge.quota(), now) {
        Some(window) => write_number(";w=", window, into),
        None => Ok(()),
    }
}

fn write_state(row: &Row, into: &mut impl fmt::Write) -> fmt::Result {
    write_name(row, into)?;
    write_number(";r=", row.decision.remaining.into(), into)?;
    match row.until_more().as_secs_ceil() {
        0 => Ok(()),
        seconds => write_number(";t=", seconds, into),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_all_of_their_digits() {
        for number in [0, 7, 10, 42, 99, 100, 305, 1_005, 60_000, 123_456_789, u64::MAX] {
            let mut text = String::new();
            write_number("q=", number, &mut text).expect("written");
            assert_eq!(text, format!("q={number}"));
        }
    }
}
