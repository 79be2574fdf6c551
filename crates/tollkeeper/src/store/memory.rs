//! The embedded store: fixed-size entries in a sharded hash table with a hard cap.
//!
//! A bucket that is full again, or a window that has passed, equals one that was never used, so dropping it cannot be
//! observed. Nothing else is ever dropped: while every entry still counts, new keys are counted in buckets that they
//! share.

mod aes;
mod area;
mod contention;
mod eviction;
mod growth;
mod holds;
mod identity;
mod levels;
#[expect(unreachable_pub, reason = "crates/model includes this file")]
mod lock;
mod logs;
mod message;
mod overflow;
mod owners;
mod packed;
mod pages;
mod recent;
mod returned;
mod room;
mod runs;
mod shard;
mod slots;
mod sync;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use identity::Id;
#[cfg(feature = "redis")]
pub(crate) use identity::Secret;
pub use overflow::Overflowed;
pub(crate) use shard::Place;
pub use table::TooManyKeys;
pub(crate) use table::{Lookup, Newcomer, Table};

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper_core::{Algorithm, BucketRef, Charge, Decision, Hold, Source};

use super::error::StoreError;
use super::held::{Held, Owner, Reserved};
use crate::clock::Clock;
use crate::store::exceptions::Exceptions;
use holds::{Holds, TooMany};

/// Keeps state in this process.
///
/// Buckets are identified by a keyed 128-bit hash of rule and key; the key itself is not kept.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    table: Table,
    holds: Mutex<Holds>,
    pub(super) exceptions: Exceptions,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// How many keys are kept by default.
    pub const DEFAULT_MAX_KEYS: usize = Table::DEFAULT_MAX_KEYS;
    /// How many bytes the logs of `sliding_window_log` and `concurrency` may take by default.
    pub const DEFAULT_MAX_LOG_BYTES: usize = Table::DEFAULT_MAX_LOG_BYTES;

    /// How many rules the shared buckets have room for at the same time.
    const SHARING_RULES: usize = 256;

    /// A store on the machine's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with(Self::DEFAULT_MAX_KEYS, Clock::system())
    }

    /// A store for at most this many keys on this clock, 36 bytes each. The addresses for them are reserved now, and memory is taken from the
    /// system as the store grows.
    ///
    /// # Panics
    /// When the system does not have that much memory; [`MemoryStore::try_with`] returns an error instead.
    pub fn with(max_keys: usize, clock: impl Into<Clock>) -> MemoryStore {
        MemoryStore::try_with(max_keys, clock).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`MemoryStore::with`], with an error when the system does not have enough memory for this many keys.
    pub fn try_with(max_keys: usize, clock: impl Into<Clock>) -> Result<MemoryStore, TooManyKeys> {
        let table = Table::try_new(max_keys, Self::DEFAULT_MAX_LOG_BYTES, Self::SHARING_RULES)?;
        Ok(MemoryStore { clock: clock.into(), table, holds: Mutex::default(), exceptions: Exceptions::new() })
    }

    /// An empty store like this one in which the logs of `sliding_window_log` and `concurrency` take at most this
    /// many bytes. Logs remember each admitted request, so `max_keys` does not bound them.
    #[must_use]
    pub fn with_max_log_bytes(self, max_log_bytes: usize) -> MemoryStore {
        MemoryStore { table: Table::new(self.table.max_keys(), max_log_bytes, Self::SHARING_RULES), ..self }
    }

    /// What this many keys take, in bytes.
    pub const fn bytes_of_keys(max_keys: usize) -> usize {
        max_keys.saturating_mul(Table::BYTES_PER_KEY)
    }

    /// How many charges of new keys were counted in a shared bucket, because there was no room for a bucket of their
    /// own.
    pub fn overflowed(&self) -> Overflowed {
        self.table.overflowed()
    }

    /// How many keys each rule holds, some of which may be idle by now: this shows which rule fills a store. With
    /// more than 255 rules some are counted together.
    pub fn keys_by_rule(&self) -> Vec<(Box<str>, usize)> {
        self.table.keys_by_rule()
    }

    /// From now on these rules share the room, and none of them can take all of it.
    pub(crate) fn expect_rules<'r>(&self, rules: impl IntoIterator<Item = &'r str>) {
        self.table.expect_rules(rules);
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The number of keys kept, some of which may be idle by now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no key is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys can be kept.
    pub fn max_keys(&self) -> usize {
        self.table.max_keys()
    }

    /// The memory that the store takes when it is full: all entries, used or not, and the current logs.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Decides all charges together: all or nothing.
    pub fn charge(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        Ok(self.table.charge_all(charges, &self.clock)?)
    }

    /// Decides a single charge.
    pub(crate) fn charge_one(&self, charge: &Charge) -> Result<Decision, StoreError> {
        Ok(self.table.charge(self.table.place_of(charge.bucket()), charge.cost, &self.clock)?)
    }

    /// Decides each charge separately and in order. Faster than one call for each, because memory for several buckets is
    /// fetched at once.
    pub(crate) fn charge_each(&self, charges: &[Charge], decided: &mut Vec<Result<Decision, StoreError>>) {
        for charges in charges.chunks(Table::BATCH) {
            let mut ids = [Id::default(); Table::BATCH];
            for (id, charge) in ids.iter_mut().zip(charges) {
                *id = self.table.id_of_bucket(charge.rule.name(), &charge.key);
                self.table.prefetch(*id);
            }
            // While the memory is fetched.
            let mut read = self.clock.now();
            decided.reserve(charges.len());
            for (charge, id) in charges.iter().zip(ids) {
                // The two paths do not join: see `Table::charge`.
                let known = self.table.charge_known_bucket(id, charge.quota(), charge.cost, read, Lookup::OfMany);
                if let Some(decision) = known {
                    decided.push(Ok(decision));
                    continue;
                }
                let place = Place { id, rule: charge.rule.name(), quota: charge.quota() };
                let charged = self.table.charge_slowly(place, charge.cost, Newcomer::Shares, &self.clock);
                decided.push(charged.map_err(StoreError::from));
                // That was decided later than the clock was read, and nothing after it may be decided before.
                read = self.clock.now();
            }
        }
    }

    /// The exceptions that this process knows.
    pub(crate) fn exceptions(&self) -> &Exceptions {
        &self.exceptions
    }

    /// The bucket's answer to a request of cost 1, without changing it: `remaining` does not include that request.
    pub fn inspect(&self, bucket: BucketRef<'_>) -> Decision {
        self.table.peek(self.table.place_of(bucket), &self.clock)
    }

    /// Resets a bucket; false when there was nothing to reset.
    pub fn reset(&self, bucket: BucketRef<'_>) -> bool {
        let (id, mut holds) = (self.id(bucket), self.holds());
        holds.reset(id);
        self.table.reset(id, bucket.quota, &self.clock)
    }

    /// Releases a `concurrency` slot; false when it had expired or was released before.
    pub fn release(&self, bucket: BucketRef<'_>, hold: Hold) -> bool {
        self.table.release(self.table.place_of(bucket), hold, &self.clock)
    }

    /// Holds a `concurrency` slot for another period and returns its new name; `None` when it had expired or was
    /// released before.
    pub fn renew(&self, bucket: BucketRef<'_>, hold: Hold) -> Option<Hold> {
        self.table.renew(self.table.place_of(bucket), hold, &self.clock)
    }

    /// Refunds up to `cost` of a bucket's latest charges; false when none of it still counts.
    pub fn refund(&self, bucket: BucketRef<'_>, cost: u32) -> bool {
        let (place, mut holds) = (self.table.place_of(bucket), self.holds());
        let is_back = self.table.refund(place, cost, &self.clock);
        if is_back {
            holds.count_of_any(place.id, cost);
        }
        is_back
    }

    /// Decides as [`MemoryStore::charge`] does, so that the charges can be corrected.
    pub(crate) fn reserve(&self, charges: &[Charge], hold: Duration) -> Result<Reserved, StoreError> {
        // Until it is charged: what is refunded from then on has come since.
        let (mut holds, now) = (self.holds(), self.clock.now());
        let watch = |charge: &Charge| match charge.quota().algorithm() {
            // A slot is released, and cannot be released twice.
            Algorithm::Concurrency => Some(0),
            _ => holds.watch(self.id(charge.bucket()), 2 * hold, now),
        };
        let refunded: Vec<Option<u64>> = charges.iter().map(watch).collect();
        let (decisions, receipts) = self.table.reserve_all(charges, &self.clock)?;
        drop(holds);
        let held = charges.iter().zip(receipts.into_iter().chain(std::iter::repeat(None))).zip(refunded);
        let held = held.map(|((charge, receipt), refunded)| Held::of(charge, receipt?, refunded).into()).collect();
        let decisions = decisions.into_iter().map(|decision| (decision, Source::Store)).collect();
        Ok(Reserved { decisions, held })
    }

    /// Corrects charges to their actual costs; returns how much of each was refunded.
    pub(crate) fn settle(&self, held: &[(Held, u32)]) -> Vec<u32> {
        // One after the other: each refund is bounded by the refunds before it.
        let mut holds = self.holds();
        let mut settle = |(held, cost): &(Held, u32)| {
            let place = self.table.place_of(held.charge.bucket());
            let refunded = holds.since(place.id, held);
            let back = self.table.settle(place, held.receipt, *cost, refunded, &self.clock);
            holds.count(place.id, held, back.counted, self.clock.now());
            back.refunded
        };
        held.iter().map(&mut settle).collect()
    }

    pub(crate) fn keep(
        &self,
        id: &str,
        record: &[u8],
        owners: &[Owner<'_>],
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let kept = self.holds().keep(id, record, owners, lifetime, self.clock.now());
        kept.map_err(|too_many| match too_many {
            TooMany::All => StoreError::TooManyReservations { whose: "of all clients" },
            TooMany::OfOneOwner => StoreError::TooManyReservations { whose: "of this client" },
        })
    }

    pub(crate) fn claim(&self, id: &str) -> Option<Vec<u8>> {
        self.holds().claim(id, self.clock.now())
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, bucket: BucketRef<'_>) -> Id {
        self.table.id_of_bucket(bucket.rule, bucket.key)
    }
}
