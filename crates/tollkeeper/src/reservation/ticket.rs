//! Tickets: a serialized reservation, which any process can settle later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollkeeper_core::{Bucket, Charge, Key, Receipt, Source, Span, Timestamp};

use super::{HeldRow, Reservation};
use crate::limiter::Limiter;
use crate::store::held::{Held, Owner};
use crate::store::{MAX_HOLD, Store, StoreError};

/// What is needed to settle a reservation later. Redeem it only once: redeeming it twice refunds twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    cost: u32,
    hold_ms: u64,
    rows: Vec<TicketRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TicketRow {
    rule: String,
    key: String,
    variant: u16,
    /// The quota as text, to detect changes.
    quota: String,
    charged: u32,
    at: u64,
    nth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<(u64, u32, u16)>,
    refunded: u64,
    units: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carrier: Option<String>,
    /// Decided in one process while the store was unreachable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    local: bool,
}

impl Reservation {
    /// Serializes the reservation. Slots stay held until the ticket is redeemed, or their hold expires. What was charged in this process
    /// because the store was unreachable stays charged: another process may redeem the ticket.
    pub fn into_ticket(mut self) -> Ticket {
        let rows =
            std::mem::take(&mut self.held).into_iter().filter(|row| row.source != Source::Local || row.is_slot());
        Ticket { cost: self.cost, hold_ms: self.hold.as_millis() as u64, rows: rows.map(TicketRow::from).collect() }
    }
}

impl Limiter {
    /// The reservation of a ticket. Rules removed since are not settled, and a bucket whose quota has changed gets no
    /// refund, nor does one whose hold ended longer ago than it had lasted.
    pub fn redeem(self: &Arc<Self>, ticket: Ticket) -> Reservation {
        let policy = self.policy();
        let held = ticket.rows.into_iter().filter_map(|row| {
            let rule = policy.rule(&row.rule)?.clone();
            let key = Key { variant: row.variant, value: row.key.clone() };
            Some(row.held(self.charge_of(rule, key)))
        });
        let mut held: Vec<HeldRow> = held.collect();
        // The store tracks refunds for twice as long, counted from the charge: another hold from the end of its own.
        let (hold, mut age) = (Duration::from_millis(ticket.hold_ms).min(MAX_HOLD), Duration::ZERO);
        for HeldRow { held, source, .. } in held.iter_mut().filter(|row| row.held.receipt.after.is_some()) {
            let since = self.store_of(*source).now().since(held.receipt.at).as_duration();
            if since > 2 * hold {
                held.give_nothing_back();
            } else {
                age = age.max(since);
            }
        }
        let now = Instant::now();
        let began = (now + hold).checked_sub(age).unwrap_or(now);
        Reservation { limiter: self.clone(), cost: ticket.cost, held, hold, began }
    }

    /// Keeps a ticket in the shared store for `lifetime` (at most [`MAX_HOLD`](crate::MAX_HOLD)).
    ///
    /// `id` must be unguessable: anyone who knows it can settle. A ticket that is not claimed in time is gone, and
    /// its reservation stays charged.
    ///
    /// A client may have 10,000 tickets of 6.4 MB together, and an address half of what all may have: 100,000 tickets of 64 MB.
    /// In Redis this applies to each owner, and all together are bounded by the server's memory.
    pub async fn keep(
        &self,
        id: &str,
        ticket: &[u8],
        owners: &[Owner<'_>],
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let lifetime = lifetime.min(crate::MAX_HOLD);
        match self.store().keep(id, ticket, owners, lifetime).await {
            Err(too_many @ StoreError::TooManyReservations { .. }) => Err(too_many),
            // Decisions made in this process are settled in this process.
            Err(_) if !matches!(self.store(), Store::Memory(_)) => {
                self.local().keep(id, ticket, owners, lifetime).await
            }
            kept => kept,
        }
    }

    /// Takes a ticket; `None` when it was claimed before or has expired.
    pub async fn claim(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if !matches!(self.store(), Store::Memory(_))
            && let Some(ticket) = self.local().claim(id).await?
        {
            return Ok(Some(ticket));
        }
        self.store().claim(id).await
    }
}

impl From<HeldRow> for TicketRow {
    fn from(row: HeldRow) -> TicketRow {
        let HeldRow { held: Held { charge, receipt, refunded }, units, carrier, source } = row;
        TicketRow {
            rule: charge.rule.name().to_string(),
            quota: charge.quota().to_string(),
            variant: charge.key.variant,
            key: charge.key.value,
            charged: receipt.cost,
            at: receipt.at.as_micros(),
            nth: receipt.nth,
            after: receipt.after.map(|after| (after.full_at.as_micros(), after.part, after.tag)),
            refunded,
            units,
            carrier,
            local: source == Source::Local,
        }
    }
}

impl TicketRow {
    fn held(self, charge: Charge) -> HeldRow {
        let is_same = charge.quota().to_string() == self.quota;
        let moment = |micros| Timestamp::default() + Span::from_micros(micros);
        let after = self.after.map(|(full_at, part, tag)| Bucket { full_at: moment(full_at), part, tag });
        let at = Timestamp::from_micros(self.at);
        let receipt = Receipt { cost: self.charged, at, nth: self.nth, is_lease: false, after };
        let mut held = Held { charge, receipt, refunded: self.refunded };
        if !is_same {
            held.give_nothing_back();
        }
        HeldRow {
            held,
            units: self.units,
            carrier: self.carrier,
            source: if self.local { Source::Local } else { Source::Store },
        }
    }
}
