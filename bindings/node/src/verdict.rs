//! The answer to a request, as one record that JavaScript reads only on demand.

use serde::Serialize;
use tollkeeper::{Annotation, Inspected, Row, Settlement, Span, retry_after_seconds};
use tollkeeper_engine::Checked;

use crate::clock::seconds;
use crate::record::Record;

/// A verdict as `lib/verdict.js` reads it. It starts with `0` if it passes at once, otherwise with `1` if it passes or `2` if it does not.
/// Numbers are not formatted and names not quoted here: few callers read more than the first character.
pub(crate) fn verdict(checked: &Checked) -> Record {
    let Checked { verdict, .. } = checked;
    let mut record = Record::new();
    record.byte(match (verdict.is_allowed(), verdict.delay()) {
        (true, Span::ZERO) => b'0',
        (true, _) => b'1',
        (false, _) => b'2',
    });
    record.wait(verdict.retry_after());
    record.number(verdict.delay().as_micros());
    record.text(verdict.limiting().map_or("", |row| row.charge.rule.name()));
    record.text(verdict.source().name());
    record.flag(verdict.is_unavailable());
    record.number(verdict.rows().len() as u64);
    for row in verdict.rows() {
        push(&mut record, row);
    }
    record.number(verdict.annotations().count() as u64);
    for Annotation { rule, limit, over_by, retry_after } in verdict.annotations() {
        record.text(rule);
        record.number(u64::from(limit));
        record.number(u64::from(over_by));
        record.wait(retry_after);
    }
    for header in checked.limits() {
        record.text(header.name);
        record.text_by(|record| header.write(record));
    }
    if let Some(wait) = retry_after_seconds(verdict) {
        record.text("retry-after");
        record.text(&wait.to_string());
    }
    record
}

/// What one rule says.
fn push(record: &mut Record, row: &Row) {
    let Row { charge, decision, source, .. } = row;
    record.text(charge.rule.name());
    record.flag(charge.rule.scope().is_some());
    record.text(charge.rule.scope().unwrap_or_default());
    record.text(&charge.key.value);
    record.flag(decision.is_allowed());
    record.flag(charge.rule.is_shadow());
    record.number(u64::from(decision.limit));
    record.number(u64::from(decision.remaining));
    record.wait(decision.retry_after());
    record.number(decision.reset_after.as_micros());
    record.number(decision.delay().as_micros());
    record.text(source.name());
    record.text(charge.exception().map_or("", |exception| exception.kind.name()));
}

/// The settlement of one rule's estimate.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Settled<'s> {
    rule: &'s str,
    key: &'s str,
    cost: u32,
    reserved: u32,
    refunded: u32,
    remaining: u32,
    reset_after: f64,
}

/// The settlement of estimates.
pub(crate) fn settlement(settlement: &Settlement) -> String {
    let settled = settlement.rows.iter().map(|row| Settled {
        rule: row.charge.rule.name(),
        key: &row.charge.key.value,
        cost: row.charge.cost,
        reserved: row.reserved,
        refunded: row.refunded,
        remaining: row.decision.remaining,
        reset_after: seconds(row.decision.reset_after.as_micros()),
    });
    json(&settled.collect::<Vec<_>>())
}

/// The state of a bucket.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bucket<'b> {
    key: &'b str,
    allowed: bool,
    limit: u32,
    remaining: u32,
    retry_after: Option<f64>,
    reset_after: f64,
}

/// The states of buckets.
pub(crate) fn buckets(buckets: &[Inspected]) -> String {
    let all = buckets.iter().map(|Inspected { charge, decision, .. }| Bucket {
        key: &charge.key.value,
        allowed: decision.is_allowed(),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after: decision.retry_after().map(|wait| seconds(wait.as_micros())),
        reset_after: seconds(decision.reset_after.as_micros()),
    });
    json(&all.collect::<Vec<_>>())
}

fn json(value: &impl Serialize) -> String {
    // Strings and finite numbers: serializing them cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}
