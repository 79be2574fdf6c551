//! The answer to Envoy: a status for each descriptor, in order, and headers for the client.

use std::borrow::Cow;
use std::collections::HashMap;

use http::header::RETRY_AFTER;
use prost_types::Duration;
use tollkeeper::http::AnswerStyle;
use tollkeeper::{Algorithm, Quota, Row, Span, Timestamp, Together, Verdict, limit_headers, retry_after_seconds};
use tollkeeper_core::Cost;

use super::annotations;
use super::envoy::{Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse, Unit};
use super::request::Asked;

/// The units that Envoy knows, shortest first, in seconds.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3_600),
    (Unit::Day, 86_400),
    (Unit::Week, 7 * 86_400),
    (Unit::Month, 30 * 86_400),
    (Unit::Year, 365 * 86_400),
];

pub(super) fn answer(style: &AnswerStyle, asked: &[Asked], decided: &Together, now: Timestamp) -> RateLimitResponse {
    let statuses = asked.iter().zip(&decided.parts).map(|(asked, part)| status(asked, part, now)).collect();
    let mut response_headers_to_add = headers(style, &decided.whole, now);
    let mut raw_body = Vec::new();
    if let Some((content_type, body)) = own_words(style, &decided.whole) {
        response_headers_to_add.push(header("content-type", content_type));
        raw_body = body.into_bytes();
    }
    RateLimitResponse {
        overall_code: code(&decided.whole).into(),
        statuses,
        response_headers_to_add,
        raw_body,
        request_headers_to_add: annotations::headers(&decided.whole),
        dynamic_metadata: annotations::metadata(&decided.whole),
        ..RateLimitResponse::default()
    }
}

/// The limiting rule's own response body, if it has one. Envoy chooses the status (`rate_limited_status`): its
/// protocol has no field for one.
fn own_words<'a>(style: &'a AnswerStyle, whole: &'a Verdict) -> Option<(&'a str, String)> {
    let row = whole.limiting().filter(|_| !whole.is_allowed() && !whole.is_unavailable())?;
    let (content_type, template) = style.denial_of(&row.charge.rule)?.body()?;
    Some((content_type, template.fill(whole, row)))
}

fn code(verdict: &Verdict) -> Code {
    if verdict.is_allowed() { Code::Ok } else { Code::OverLimit }
}

/// From the binding rule, or from one that never denies if there is no other; a descriptor to which no rule applies shows
/// no limit.
fn status(asked: &Asked, verdict: &Verdict, now: Timestamp) -> DescriptorStatus {
    let code = code(verdict).into();
    let Some(shown) = verdict.binding().or_else(|| verdict.rows().iter().find(|row| !row.is_unasked())) else {
        return DescriptorStatus { code, ..DescriptorStatus::default() };
    };
    let (requests_per_unit, unit) = per_unit(shown.charge.quota());
    let name = shown.charge.rule.name().to_string();
    let mut status = DescriptorStatus {
        code,
        current_limit: Some(RateLimit { name, requests_per_unit, unit: unit.into() }),
        limit_remaining: shown.decision.remaining,
        duration_until_reset: Some(duration(until_reset(shown, now))),
        quota: None,
    };
    if let (true, Some(current)) = (lets_nothing_pass(asked, shown), &mut status.current_limit) {
        (current.requests_per_unit, status.limit_remaining) = (0, 0);
    }
    status
}

/// A limit of 0: sent by the caller, or that of a rule whose cost is above its limit.
fn lets_nothing_pass(asked: &Asked, row: &Row) -> bool {
    match (&asked.limit, row.charge.rule.cost()) {
        (Some(limit), _) => limit.requests_per_unit == 0,
        (None, Cost::Fixed(cost)) => *cost > row.charge.quota().limit(),
        (None, _) => false,
    }
}

/// Until there is more, or of a window that is not used yet, until it ends.
fn until_reset(row: &Row, now: Timestamp) -> Span {
    let (more, quota) = (row.until_more(), row.charge.quota());
    match quota.algorithm() {
        Algorithm::FixedWindow if more == Span::ZERO && !row.is_blocked() => quota.window_at(now).end.since(now),
        _ => more,
    }
}

/// A quota in one of Envoy's units. If its period is not one of them, the next longer unit, with the count for that
/// time, rounded down: 5 in 90 s are 200 an hour.
fn per_unit(quota: &Quota) -> (u32, Unit) {
    if quota.algorithm() == Algorithm::Concurrency {
        return (quota.limit(), Unit::Unknown);
    }
    let period = u128::from(quota.period().as_micros());
    let micros = |seconds: u64| u128::from(seconds) * 1_000_000;
    let longest = UNITS[UNITS.len() - 1];
    let (unit, seconds) = UNITS.into_iter().find(|(_, seconds)| micros(*seconds) >= period).unwrap_or(longest);
    let count = u128::from(quota.count()) * micros(seconds) / period;
    (u32::try_from(count).unwrap_or(u32::MAX).max(1), unit)
}

/// In whole seconds, rounded up: Envoy drops fractions, and a client that reads "0 s" would retry at once.
fn duration(span: Span) -> Duration {
    Duration { seconds: span.as_secs_ceil() as i64, nanos: 0 }
}

/// The limit headers of the configured style, and `Retry-After`.
fn headers(style: &AnswerStyle, whole: &Verdict, now: Timestamp) -> Vec<HeaderValue> {
    let mut headers: Vec<HeaderValue> = limit_headers(style.headers, &one_row_per_rule(whole), now)
        .into_iter()
        .map(|(name, value)| header(name, value))
        .collect();
    headers.extend(retry_after_seconds(whole).map(|seconds| header(RETRY_AFTER.as_str(), seconds.to_string())));
    headers
}

fn header(name: &str, value: impl Into<String>) -> HeaderValue {
    HeaderValue { key: name.into(), value: value.into(), ..HeaderValue::default() }
}

/// Descriptors may use several buckets of one rule; a header names a rule once, with the binding bucket.
fn one_row_per_rule(whole: &Verdict) -> Cow<'_, Verdict> {
    /// Up to so many rows, comparing all names is quicker than hashing each.
    const FEW: usize = 8;
    let rows = whole.rows();
    let is_new = |(place, row): (usize, &Row)| {
        rows[..place].iter().all(|before| before.charge.rule.name() != row.charge.rule.name())
    };
    if rows.len() <= FEW && rows.iter().enumerate().all(is_new) {
        return Cow::Borrowed(whole);
    }
    let mut by_rule: HashMap<&str, usize> = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    for row in whole.rows() {
        match by_rule.get(row.charge.rule.name()) {
            Some(&place) => {
                let both = Verdict::new(vec![rows[place].clone(), row.clone()]);
                if let Some(binding) = both.binding() {
                    rows[place] = binding.clone();
                }
            }
            None => {
                by_rule.insert(row.charge.rule.name(), rows.len());
                rows.push(row.clone());
            }
        }
    }
    Cow::Owned(Verdict::new(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_shown_in_the_shortest_unit_that_holds_its_period() {
        let unit_of = |count, micros| per_unit(&Quota::per(count, Span::from_micros(micros)).build().expect("a quota"));
        assert_eq!(unit_of(10, 1_000_000), (10, Unit::Second));
        assert_eq!(unit_of(6_000, 60_000_000), (6_000, Unit::Minute));
        assert_eq!(unit_of(20, 100_000), (200, Unit::Second));
        assert_eq!(unit_of(5, 90_000_000), (200, Unit::Hour));
        assert_eq!(unit_of(1, 2 * 365 * 86_400_000_000), (1, Unit::Year));
        let slots = Quota::concurrent(3, Span::from_secs(60)).build().expect("a quota");
        assert_eq!(per_unit(&slots), (3, Unit::Unknown));
    }
}
