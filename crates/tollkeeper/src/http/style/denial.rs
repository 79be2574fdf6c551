//! What a denial says: which rules, and when to retry.
//!
//! Texts are put together by hand: a service under attack mostly denies, and formatting took longer than deciding. No text needs
//! escaping: names of rules are checked when a rule is built.

use http::StatusCode;
use tollkeeper_core::{Row, Span, Verdict};

/// The problem document, as [`Problem`](super::Problem) would write it.
pub(super) fn document(kind: &str, title: &str, status: StatusCode, verdict: &Verdict) -> String {
    let mut text = String::with_capacity(320);
    push(&mut text, &[r#"{"type":""#, kind, r#"","title":""#, title, r#"","status":"#, status.as_str()]);
    text.push_str(r#","detail":""#);
    push_detail(&mut text, verdict);
    text.push_str(r#"","violated-policies":["#);
    for (index, name) in violated(verdict).enumerate() {
        push(&mut text, &[if index > 0 { ",\"" } else { "\"" }, name, "\""]);
    }
    text.push_str(r#"],"retry_after_ms":"#);
    match verdict.retry_after() {
        Some(wait) => push_number(&mut text, wait.as_millis_ceil()),
        None => text.push_str("null"),
    }
    text.push('}');
    text
}

/// Which rule, and when to retry, for people.
#[cfg(any(feature = "tower", test))]
pub(crate) fn denial_detail(verdict: &Verdict) -> String {
    let mut text = String::with_capacity(96);
    push_detail(&mut text, verdict);
    text
}

/// The rules that deny, in file order: enforced ones, or all quotas together.
fn violated(verdict: &Verdict) -> impl Iterator<Item = &str> {
    let by_quotas = verdict.limiting().is_some_and(|row| row.charge.rule.is_quota());
    let may_deny = move |row: &Row| row.charge.rule.is_enforced() || (by_quotas && row.charge.rule.is_quota());
    let rows = verdict.rows().iter();
    rows.filter(move |row| may_deny(row) && !row.decision.is_allowed()).map(|row| row.charge.rule.name())
}

fn push_detail(text: &mut String, verdict: &Verdict) {
    let Some(row) = verdict.limiting() else {
        return text.push_str("The request is within its limits.");
    };
    let name = row.charge.rule.name();
    let wait = verdict.retry_after();
    match (wait, row.is_blocked()) {
        (Some(_), true) => push(text, &["Rule `", name, "` blocks this key; retry in "]),
        (None, true) => push(text, &["Rule `", name, "` blocks this key until further notice."]),
        (Some(_), false) if verdict.is_unavailable() => {
            push(text, &["Rule `", name, "` cannot be checked right now and fails closed; retry in "]);
        }
        (Some(_), false) => push(text, &["The limit of rule `", name, "` is reached; retry in "]),
        (None, false) => {
            text.push_str("The request costs ");
            push_number(text, row.charge.cost.into());
            push(text, &[" and rule `", name, "` never allows more than "]);
            push_number(text, row.decision.limit.into());
            text.push_str(": the cost exceeds the limit, so waiting does not help.");
        }
    }
    if let Some(wait) = wait {
        push_wait(text, wait);
        text.push('.');
    }
}

/// Rounded up: a client that retries early is denied again.
fn push_wait(text: &mut String, wait: Span) {
    let (number, unit) = match (wait.as_millis_ceil(), wait.as_secs_ceil()) {
        (ms @ 0..1_000, _) => (ms, " millisecond"),
        (_, seconds @ 0..120) => (seconds, " second"),
        (_, seconds @ 120..7_200) => (seconds.div_ceil(60), " minute"),
        (_, seconds @ 7_200..172_800) => (seconds.div_ceil(3_600), " hour"),
        (_, seconds) => (seconds.div_ceil(86_400), " day"),
    };
    push_number(text, number);
    push(text, &[unit, if number == 1 { "" } else { "s" }]);
}

fn push(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
}

fn push_number(text: &mut String, number: u64) {
    text.push_str(&number.to_string());
}
