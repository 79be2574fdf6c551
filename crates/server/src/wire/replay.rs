//! The lines that `replay` writes: verdicts, to the microsecond.
//!
//! Written field by field, because a replay spends much of its time here: half as long as with `Serialize`, which quotes and
//! checks the name of every field again for each of millions of lines.

use serde::Serialize;
use tollkeeper::{Row, Span, Verdict};

use super::hold::HoldName;
use super::verdict::delay;

/// Appends a verdict as one line of `replay`'s output, without the line's end.
pub(crate) fn write_replay_line(out: &mut Vec<u8>, at_us: u64, verdict: &Verdict) {
    out.extend_from_slice(br#"{"at_us":"#);
    value(out, at_us);
    out.extend_from_slice(br#","allowed":"#);
    value(out, verdict.is_allowed());
    out.extend_from_slice(br#","limiting":"#);
    text(out, verdict.limiting().map(|row| row.charge.rule.name()));
    out.extend_from_slice(br#","retry_after_us":"#);
    value(out, verdict.retry_after().map(Span::as_micros));
    out.extend_from_slice(br#","rules":["#);
    for (place, row) in verdict.rows().iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_row(out, row);
    }
    out.extend_from_slice(b"]}");
}

fn write_row(out: &mut Vec<u8>, row: &Row) {
    let (rule, decision) = (&*row.charge.rule, &row.decision);
    out.extend_from_slice(br#"{"rule":"#);
    text(out, Some(rule.name()));
    out.extend_from_slice(br#","scope":"#);
    text(out, rule.scope());
    out.extend_from_slice(br#","key":"#);
    text(out, Some(&row.charge.key.value));
    out.extend_from_slice(br#","allowed":"#);
    value(out, decision.is_allowed());
    out.extend_from_slice(br#","shadow":"#);
    value(out, rule.is_shadow());
    if rule.annotates() {
        out.extend_from_slice(br#","mode":"annotate""#);
    }
    out.extend_from_slice(br#","limit":"#);
    value(out, decision.limit);
    out.extend_from_slice(br#","remaining":"#);
    value(out, decision.remaining);
    out.extend_from_slice(br#","retry_after_us":"#);
    value(out, decision.retry_after().map(Span::as_micros));
    out.extend_from_slice(br#","reset_after_us":"#);
    value(out, decision.reset_after.as_micros());
    if let Some(delay) = delay(row) {
        out.extend_from_slice(br#","delay_us":"#);
        value(out, delay.as_micros());
    }
    if let Some(hold) = HoldName::of(row) {
        out.extend_from_slice(br#","hold":"#);
        value(out, hold);
    }
    out.push(b'}');
}

fn text(out: &mut Vec<u8>, text: Option<&str>) {
    let Some(plain) = text.filter(|text| text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')) else {
        return value(out, text);
    };
    out.push(b'"');
    out.extend_from_slice(plain.as_bytes());
    out.push(b'"');
}

fn value(out: &mut Vec<u8>, value: impl Serialize) {
    serde_json::to_writer(out, &value).expect("numbers and texts are always JSON");
}
