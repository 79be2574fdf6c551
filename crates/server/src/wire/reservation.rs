//! Answers about reservations and their settlement.

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Settled, Settlement, Span, Verdict};

use super::verdict::{CheckAnswer, HeadersAnswer};
use crate::seal::Seal;

/// The answer for an estimate.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reserved")]
pub(crate) struct ReserveAnswer<'v> {
    #[serde(flatten)]
    verdict: CheckAnswer<'v>,
    /// Null when the request was denied: nothing was charged.
    reservation: Option<ReservationAnswer>,
}

/// A reservation to settle.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reservation")]
pub(crate) struct ReservationAnswer {
    /// Anyone who knows it can settle, once: POST /v1/reservations/ID/settle.
    #[schemars(regex(pattern = r"^[0-9a-f]{32}$"))]
    pub(crate) id: String,
    /// After this many milliseconds the estimate stays charged.
    pub(crate) expires_in_ms: u64,
}

impl<'v> ReserveAnswer<'v> {
    pub(crate) fn new(
        verdict: &'v Verdict,
        headers: Option<HeadersAnswer>,
        reservation: Option<ReservationAnswer>,
        seal: &Seal,
    ) -> ReserveAnswer<'v> {
        ReserveAnswer { verdict: CheckAnswer::new(verdict, headers, seal), reservation }
    }
}

/// The result of settling a reservation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Settlement")]
pub(crate) struct SettleAnswer<'s> {
    /// One row per rule that was charged and is still in force.
    rules: Vec<SettledAnswer<'s>>,
}

/// The result for one rule's charge.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Settled")]
struct SettledAnswer<'s> {
    /// The rule's name.
    rule: &'s str,
    /// The rule's label, if it has one.
    scope: Option<&'s str>,
    /// Which of the rule's buckets.
    key: &'s str,
    /// The estimate that was charged.
    reserved: u32,
    /// The actual cost.
    cost: u32,
    /// How much was refunded; less than the difference if the bucket has refilled in the meantime.
    refunded: u32,
    /// The burst of a bucket, or N of a window.
    limit: u32,
    /// Whole tokens left now.
    remaining: u32,
    /// Milliseconds until the bucket is full again, rounded up.
    reset_after_ms: u64,
}

impl<'s> From<&'s Settlement> for SettleAnswer<'s> {
    fn from(settlement: &'s Settlement) -> Self {
        let row = |row: &'s Settled| SettledAnswer {
            rule: row.charge.rule.name(),
            scope: row.charge.rule.scope(),
            key: &row.charge.key.value,
            reserved: row.reserved,
            cost: row.charge.cost,
            refunded: row.refunded,
            limit: row.decision.limit,
            remaining: row.decision.remaining,
            reset_after_ms: Span::as_millis_ceil(row.decision.reset_after),
        };
        SettleAnswer { rules: settlement.rows.iter().map(row).collect() }
    }
}
