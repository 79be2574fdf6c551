//! A reservation that outlives the call that made it, written down: whoever has the ticket settles, in whatever process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollkeeper_core::{Bucket, Charge, Key, Receipt, Source, Span, Timestamp};

use super::{HeldRow, Reservation};
use crate::limiter::Limiter;
use crate::store::held::Held;
use crate::store::{Store, StoreError};

/// What has to be known to settle a reservation later. To be redeemed once: whoever redeems it twice gives back twice.
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
    /// In words, to see whether it has changed.
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
    /// Decided in one process while the store was away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    local: bool,
}

impl Reservation {
    /// Writes the reservation down. Slots stay occupied until the ticket is redeemed, or their hold is over.
    pub fn into_ticket(mut self) -> Ticket {
        let rows = std::mem::take(&mut self.held).into_iter().map(TicketRow::from).collect();
        Ticket { cost: self.cost, hold_ms: self.hold.as_millis() as u64, rows }
    }
}

impl Limiter {
    /// The reservation of a ticket. Rules that have gone since are settled by nobody, and a bucket whose quota has
    /// changed is given nothing back.
    pub fn redeem(self: &Arc<Self>, ticket: Ticket) -> Reservation {
        let policy = self.policy();
        let held = ticket.rows.into_iter().filter_map(|row| {
            let rule = policy.rule(&row.rule)?.clone();
            let key = Key { variant: row.variant, value: row.key.clone() };
            Some(row.held(self.charge_of(rule, key)))
        });
        // The store counts for twice as long, and whoever claims a ticket settles at once.
        let (hold, began) = (Duration::from_millis(ticket.hold_ms), Instant::now());
        Reservation { limiter: self.clone(), cost: ticket.cost, held: held.collect(), hold, began }
    }

    /// Keeps a ticket for all who share the store, as long as told (at most [`MAX_HOLD`](crate::MAX_HOLD)).
    ///
    /// `id` must be one that nobody can guess: whoever knows it can settle. A ticket that nobody claims in time is gone,
    /// and what was reserved stays charged.
    pub async fn keep(&self, id: &str, ticket: &[u8], lifetime: Duration) -> Result<(), StoreError> {
        let lifetime = lifetime.min(crate::MAX_HOLD);
        match self.store().keep(id, ticket, lifetime).await {
            // What was decided here is settled here.
            Err(_) if !matches!(self.store(), Store::Memory(_)) => self.local().keep(id, ticket, lifetime).await,
            kept => kept,
        }
    }

    /// Takes a ticket that was kept; `None` when it was claimed before, or its time is over.
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
