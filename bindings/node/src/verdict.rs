//! The answer to a request, with its details as one JSON text that JavaScript parses only on demand.

use serde::{Serialize, Serializer};
use tollkeeper::{Inspected, Row, Settlement, retry_after_seconds};
use tollkeeper_engine::Checked;

use crate::clock::seconds;

/// Details that are seldom needed: `lib/verdict.js` parses them on demand.
#[derive(Serialize)]
struct Details<'v> {
    limiting: Option<&'v str>,
    source: &'static str,
    unavailable: bool,
    rules: Vec<Decided<'v>>,
    #[serde(serialize_with = "map")]
    headers: Vec<(&'static str, String)>,
}

fn map<S: Serializer>(fields: &[(&'static str, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
}

/// What one rule says.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Decided<'v> {
    rule: &'v str,
    scope: Option<&'v str>,
    key: &'v str,
    allowed: bool,
    shadow: bool,
    limit: u32,
    remaining: u32,
    retry_after: Option<f64>,
    reset_after: f64,
    delay: f64,
    source: &'static str,
    /// The kind of the exception that is in force for this key.
    exception: Option<&'static str>,
}

impl<'v> Decided<'v> {
    fn new(row: &'v Row) -> Decided<'v> {
        let Row { charge, decision, source, .. } = row;
        Decided {
            rule: charge.rule.name(),
            scope: charge.rule.scope(),
            key: &charge.key.value,
            allowed: decision.is_allowed(),
            shadow: charge.rule.is_shadow(),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after: decision.retry_after().map(|wait| seconds(wait.as_micros())),
            reset_after: seconds(decision.reset_after.as_micros()),
            delay: seconds(decision.delay().as_micros()),
            source: source.name(),
            exception: charge.exception().map(|exception| exception.kind.name()),
        }
    }
}

/// A verdict as `lib/verdict.js` reads it: `0` if it passes at once, otherwise `1` if it passes or `2` if it does not, and on
/// a line each the wait until it passes, empty if there is none, and the delay. Its details follow as JSON.
pub(crate) fn verdict(checked: &Checked) -> String {
    let Checked { verdict, .. } = checked;
    let mut text = Vec::with_capacity(512);
    match (verdict.is_allowed(), verdict.delay().as_micros()) {
        (true, 0) => text.push(b'0'),
        (is_allowed, delay) => {
            text.push(if is_allowed { b'1' } else { b'2' });
            let wait = verdict.retry_after().map(|wait| seconds(wait.as_micros()).to_string()).unwrap_or_default();
            text.extend(format!("{wait}\n{}\n", seconds(delay)).into_bytes());
        }
    }
    let mut headers = checked.limits();
    headers.extend(retry_after_seconds(verdict).map(|wait| ("retry-after", wait.to_string())));
    let details = Details {
        limiting: verdict.limiting().map(|row| row.charge.rule.name()),
        source: verdict.source().name(),
        unavailable: verdict.is_unavailable(),
        rules: verdict.rows().iter().map(Decided::new).collect(),
        headers,
    };
    // Strings and finite numbers: serializing them cannot fail.
    let _ = serde_json::to_writer(&mut text, &details);
    String::from_utf8(text).unwrap_or_default()
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
