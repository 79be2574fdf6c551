//! The lines that `replay` writes: verdicts, to the microsecond.

use tollkeeper::{Row, Span, Verdict};

use super::hold::HoldName;
use super::member::{member, optional, text};
use super::verdict::delay;

/// Appends a verdict as one line of `replay`'s output, without the line's end.
pub(crate) fn write_replay_line(out: &mut Vec<u8>, at_us: u64, verdict: &Verdict) {
    member(out, r#"{"at_us":"#, at_us);
    member(out, r#","allowed":"#, verdict.is_allowed());
    text(out, r#","limiting":"#, verdict.limiting().map(|row| row.charge.rule.name()));
    member(out, r#","retry_after_us":"#, verdict.retry_after().map(Span::as_micros));
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
    text(out, r#"{"rule":"#, Some(rule.name()));
    text(out, r#","scope":"#, rule.scope());
    text(out, r#","key":"#, Some(&row.charge.key.value));
    member(out, r#","allowed":"#, decision.is_allowed());
    member(out, r#","shadow":"#, rule.is_shadow());
    optional(out, r#","mode":"#, rule.annotates().then_some("annotate"));
    member(out, r#","limit":"#, decision.limit);
    member(out, r#","remaining":"#, decision.remaining);
    member(out, r#","retry_after_us":"#, decision.retry_after().map(Span::as_micros));
    member(out, r#","reset_after_us":"#, decision.reset_after.as_micros());
    optional(out, r#","delay_us":"#, delay(row).map(Span::as_micros));
    optional(out, r#","hold":"#, HoldName::of(row));
    out.push(b'}');
}
