//! The lines that `replay` writes: verdicts, to the microsecond.

use serde::{Serialize, Serializer};
use tollkeeper::{Row, Span, Verdict};

use super::hold::HoldName;
use super::verdict::delay;

/// A verdict as one line of `replay`'s output, to the microsecond.
#[derive(Serialize)]
struct ReplayLine<'v> {
    at_us: u64,
    allowed: bool,
    limiting: Option<&'v str>,
    retry_after_us: Option<u64>,
    rules: Rules<'v>,
}

/// Written one by one.
struct Rules<'v>(&'v [Row]);

impl Serialize for Rules<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(ReplayRule::from))
    }
}

#[derive(Serialize)]
struct ReplayRule<'v> {
    rule: &'v str,
    scope: Option<&'v str>,
    key: &'v str,
    allowed: bool,
    shadow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    limit: u32,
    remaining: u32,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<HoldName>,
}

/// Appends a verdict as one line of `replay`'s output, without the line's end.
pub(crate) fn write_replay_line(out: &mut Vec<u8>, at_us: u64, verdict: &Verdict) {
    let line = ReplayLine {
        at_us,
        allowed: verdict.is_allowed(),
        limiting: verdict.limiting().map(|row| row.charge.rule.name()),
        retry_after_us: verdict.retry_after().map(Span::as_micros),
        rules: Rules(verdict.rows()),
    };
    serde_json::to_writer(out, &line).expect("a verdict is always JSON");
}

impl<'v> From<&'v Row> for ReplayRule<'v> {
    fn from(row: &'v Row) -> Self {
        let (rule, decision) = (&*row.charge.rule, &row.decision);
        ReplayRule {
            rule: rule.name(),
            scope: rule.scope(),
            key: &row.charge.key.value,
            allowed: decision.is_allowed(),
            shadow: rule.is_shadow(),
            mode: rule.annotates().then_some("annotate"),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after().map(Span::as_micros),
            reset_after_us: decision.reset_after.as_micros(),
            delay_us: delay(row).map(Span::as_micros),
            hold: HoldName::of(row),
        }
    }
}
