//! All shards together: the base of both the memory store and `keyed`.
//!
//! A request locks the shards of its keys in order of their numbers, reads the clock so that on each key time order
//! is lock order, decides, makes room for all new entries, and only then writes.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tollkeeper_core::{
    Bucket, Change, Charge, Decision, Hold, Key, Quota, Receipt, Span, State, Timestamp, decide_all,
};

use super::identity::{Id, Secret};
use super::lock::Lock;
use super::room::Room;
use super::runs::{glimpse, home};
use super::shard::{Locked, NoRoom, Seen, Shard, Write};
use super::slots::{self, Slot};
use crate::clock::Clock;
use crate::store::error::StoreError;

/// A hash table of states with a fixed capacity.
pub(crate) struct Table {
    secret: Secret,
    /// The slots of all shards, one after the other.
    slots: Box<[Slot]>,
    slots_per_shard: usize,
    /// A power of two.
    shards: Box<[Padded]>,
    calm: usize,
    room: Room,
    /// Logs are not searched for droppable ones again before this moment.
    search_logs_at: AtomicU64,
}

/// A shard on cache lines of its own: not even the pair of lines that processors fetch together is shared.
#[derive(Default)]
#[repr(align(128))]
struct Padded {
    lock: Lock<Shard>,
    /// Whether the last charge to an existing bucket was denied, so that the next one probably is too.
    denies: AtomicBool,
}

/// There is no room for this charge's key or log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    charge: usize,
    lacking: NoRoom,
}

impl From<Full> for StoreError {
    fn from(full: Full) -> StoreError {
        StoreError::Full { charge: full.charge }
    }
}

impl Table {
    pub(crate) const DEFAULT_MAX_KEYS: usize = 1_000_000;
    pub(crate) const DEFAULT_MAX_LOG_BYTES: usize = 64 << 20;

    const MAX_SHARDS: usize = 64;
    const KEYS_PER_SHARD: usize = 16_384;
    /// A search for droppable logs looks at all of them; after one that found nothing, wait this long.
    const SEARCH_LOGS_EVERY: Span = Span::from_micros(50_000);

    pub(crate) fn new(max_keys: usize, max_log_bytes: usize) -> Table {
        let shards = (max_keys / Self::KEYS_PER_SHARD).next_power_of_two().clamp(1, Self::MAX_SHARDS);
        let share = max_keys.div_ceil(shards);
        // At most 70% full when all keys are used: 24 bytes per entry are then 34 bytes per key.
        let slots_per_shard = (share.saturating_mul(10) / 7 + 1).max(8);
        Table {
            secret: Secret::random(),
            slots: slots::allocate(slots_per_shard.saturating_mul(shards)),
            slots_per_shard,
            shards: (0..shards).map(|_| Padded::default()).collect(),
            calm: share - share / 4,
            room: Room::new(max_keys, max_log_bytes),
            search_logs_at: AtomicU64::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.room.keys()
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.room.max_keys
    }

    pub(crate) fn max_log_bytes(&self) -> usize {
        self.room.max_log_bytes
    }

    /// The memory that the table takes: all slots, touched or not, and the logs.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.shards) + self.room.log_bytes()
    }

    #[inline]
    pub(crate) fn id_of(&self, key: &(impl Hash + ?Sized)) -> Id {
        self.secret.key(key)
    }

    pub(crate) fn id_of_bucket(&self, rule: &str, key: &Key) -> Id {
        self.secret.bucket(rule, key)
    }

    /// Prefetches an entry.
    #[inline]
    pub(crate) fn prefetch(&self, id: Id) {
        self.slots_of(self.shard_of(id))[home(id, self.slots_per_shard)].prefetch();
    }

    /// Decides one charge.
    #[inline(always)]
    pub(crate) fn charge(&self, id: Id, quota: &Quota, cost: u32, clock: &Clock) -> Result<Decision, Full> {
        // The two paths do not join: a decision that could come from either would be moved through memory, which
        // takes longer than everything else.
        match self.charge_known_bucket(id, quota, cost, clock.now(), clock) {
            Some(decision) => Ok(decision),
            None => self.charge_slowly(id, quota, cost, clock),
        }
    }

    /// Decides one charge if its bucket exists. The clock was read before: that takes as long as hashing a key, and
    /// the processor does both at once.
    ///
    /// While requests are being denied, the bucket is first read without the lock: a denial writes nothing, so the
    /// read is valid if nothing was written in between, and denied requests do not wait for each other.
    #[inline(always)]
    pub(crate) fn charge_known_bucket(
        &self,
        id: Id,
        quota: &Quota,
        cost: u32,
        read: Timestamp,
        clock: &Clock,
    ) -> Option<Decision> {
        if !quota.algorithm().has_burst() {
            return None;
        }
        let number = self.shard_of(id);
        let Padded { lock, denies } = &self.shards[number];
        if denies.load(Relaxed)
            && let Some(moment) = lock.moment()
            && let Some(bucket) = glimpse(self.slots_of(number), id)
        {
            let (decision, next) = Bucket::decide(quota, cost, Some(bucket), read);
            if next.is_none() && lock.is_still(moment) {
                return Some(decision);
            }
        }
        let mut shard = self.lock_for(id);
        let now = shard.time(read, clock);
        let decision = shard.charge_known_bucket(id, quota, cost, now)?;
        let denied = !decision.is_allowed();
        // Written only if it changes: a write would claim the cache line.
        if denies.load(Relaxed) != denied {
            denies.store(denied, Relaxed);
        }
        Some(decision)
    }

    #[inline(never)]
    pub(crate) fn charge_slowly(&self, id: Id, quota: &Quota, cost: u32, clock: &Clock) -> Result<Decision, Full> {
        match self.try_charge(id, quota, cost, clock) {
            Err(NoRoom::Log) if self.drop_logs(clock.now()) => self.try_charge(id, quota, cost, clock),
            other => other,
        }
        .map_err(|lacking| Full { charge: 0, lacking })
    }

    fn try_charge(&self, id: Id, quota: &Quota, cost: u32, clock: &Clock) -> Result<Decision, NoRoom> {
        let mut shard = self.lock_for(id);
        let now = clock.now();
        shard.decided_at(now);
        let at = shard.find(id);
        let (decision, change) = shard.decide(at, quota, cost, now);
        if change != Change::None {
            shard.commit(at, Write { id, quota, change }, now)?;
        }
        Ok(decision)
    }

    /// Decides several charges: all or nothing.
    pub(crate) fn charge_all(&self, charges: &[Charge], clock: &Clock) -> Result<Vec<Decision>, Full> {
        let ids: Vec<Id> = charges.iter().map(|charge| self.id_of_bucket(charge.rule.name(), &charge.key)).collect();
        if let ([charge], [id]) = (charges, &*ids) {
            return Ok(vec![self.charge(*id, charge.quota(), charge.cost, clock)?]);
        }
        Ok(self.charge_together(charges, &ids, clock, false)?.0)
    }

    /// The same, with receipts of the charges; empty when denied.
    pub(crate) fn reserve_all(
        &self,
        charges: &[Charge],
        clock: &Clock,
    ) -> Result<(Vec<Decision>, Vec<Option<Receipt>>), Full> {
        let ids: Vec<Id> = charges.iter().map(|charge| self.id_of_bucket(charge.rule.name(), &charge.key)).collect();
        self.charge_together(charges, &ids, clock, true)
    }

    fn charge_together(
        &self,
        charges: &[Charge],
        ids: &[Id],
        clock: &Clock,
        with_receipts: bool,
    ) -> Result<(Vec<Decision>, Vec<Option<Receipt>>), Full> {
        match self.try_charge_all(charges, ids, clock, with_receipts) {
            Err(Full { lacking: NoRoom::Log, .. }) if self.drop_logs(clock.now()) => {
                self.try_charge_all(charges, ids, clock, with_receipts)
            }
            other => other,
        }
    }

    fn try_charge_all(
        &self,
        charges: &[Charge],
        ids: &[Id],
        clock: &Clock,
        with_receipts: bool,
    ) -> Result<(Vec<Decision>, Vec<Option<Receipt>>), Full> {
        let mut shards = self.lock_all(ids);
        let now = clock.now();
        shards.shards.iter_mut().for_each(|(_, shard)| shard.decided_at(now));
        let seen: Vec<Seen<'_>> = ids.iter().map(|id| shards.of(*id).seen(shards.of(*id).find(*id))).collect();
        let decided = decide_all(charges, seen.iter().map(AsRef::<State>::as_ref), now);
        drop(seen);
        let denies = |(charge, (decision, _)): (&Charge, &(Decision, Change))| {
            charge.rule.is_enforced() && !decision.is_allowed()
        };
        let mut receipts = Vec::new();
        if with_receipts && !charges.iter().zip(&decided).any(denies) {
            let taken = charges.iter().zip(&decided);
            receipts.extend(taken.map(|(charge, (decision, change))| Receipt::of(charge.cost, decision, change, now)));
        }
        let mut decisions = Vec::with_capacity(charges.len());
        let mut writes = Vec::with_capacity(charges.len());
        for (charge, ((decision, change), id)) in decided.into_iter().zip(ids).enumerate() {
            decisions.push(decision);
            if change != Change::None {
                writes.push((charge, Write { id: *id, quota: charges[charge].quota(), change }));
            }
        }
        shards.commit_all(writes, &self.room, now)?;
        Ok((decisions, receipts))
    }

    /// The bucket's answer to a request of cost 1, with `remaining` as it is without that request.
    pub(crate) fn peek(&self, id: Id, quota: &Quota, clock: &Clock) -> Decision {
        let shard = self.lock_for(id);
        let (at, now) = (shard.find(id), clock.now());
        let (untouched, _) = shard.decide(at, quota, 0, now);
        Decision { outcome: shard.decide(at, quota, 1, now).0.outcome, ..untouched }
    }

    /// Resets a bucket; false when it had nothing to reset.
    pub(crate) fn reset(&self, id: Id, quota: &Quota, clock: &Clock) -> bool {
        self.lock_for(id).reset(id, quota, clock.now())
    }

    /// Releases a slot of a `concurrency` quota.
    pub(crate) fn release(&self, id: Id, quota: &Quota, hold: Hold, clock: &Clock) -> bool {
        self.lock_for(id).release(id, quota, hold, clock.now())
    }

    /// Holds a slot of a `concurrency` quota for another period.
    pub(crate) fn renew(&self, id: Id, quota: &Quota, hold: Hold, clock: &Clock) -> Option<Hold> {
        self.lock_for(id).renew(id, quota, hold, clock.now())
    }

    /// Refunds up to `cost` of a bucket's latest charges.
    pub(crate) fn give_back(&self, id: Id, quota: &Quota, cost: u32, clock: &Clock) -> bool {
        self.lock_for(id).give_back(id, quota, cost, clock.now())
    }

    /// Corrects a charge to its actual cost; returns how much was refunded.
    pub(crate) fn settle(
        &self,
        id: Id,
        quota: &Quota,
        receipt: Receipt,
        cost: u32,
        refunded: u64,
        clock: &Clock,
    ) -> u32 {
        self.lock_for(id).edit(id, quota, clock.now(), |state, now| state.settle(quota, receipt, cost, refunded, now))
    }

    /// Drops every log that no longer counts; whether there were any.
    #[cold]
    fn drop_logs(&self, now: Timestamp) -> bool {
        let due = Timestamp::from_micros(self.search_logs_at.load(Relaxed));
        // It can only be further ahead if the clock ran back.
        if now < due && due.since(now) <= Self::SEARCH_LOGS_EVERY {
            return false;
        }
        self.search_logs_at.store((now + Self::SEARCH_LOGS_EVERY).as_micros(), Relaxed);
        (0..self.shards.len()).map(|shard| self.lock(shard, self.slots_of(shard)).drop_logs(now)).sum::<usize>() > 0
    }

    #[cfg(test)]
    pub(super) fn each_shard(&self) -> impl Iterator<Item = Locked<'_>> {
        (0..self.shards.len()).map(|shard| self.lock(shard, self.slots_of(shard)))
    }

    #[inline]
    fn shard_of(&self, id: Id) -> usize {
        // The highest bits; the home slot uses the lowest.
        (id.place >> 58) as usize & (self.shards.len() - 1)
    }

    #[inline]
    fn slots_of(&self, shard: usize) -> &[Slot] {
        &self.slots[shard * self.slots_per_shard..][..self.slots_per_shard]
    }

    /// Locks the shard of `id`, while its entry is being prefetched.
    #[inline]
    fn lock_for(&self, id: Id) -> Locked<'_> {
        let shard = self.shard_of(id);
        let slots = self.slots_of(shard);
        slots[home(id, slots.len())].prefetch();
        self.lock(shard, slots)
    }

    #[inline]
    fn lock<'t>(&'t self, shard: usize, slots: &'t [Slot]) -> Locked<'t> {
        Locked { shard: self.shards[shard].lock.lock(), slots, room: &self.room, calm: self.calm }
    }

    fn lock_all(&self, ids: &[Id]) -> LockedShards<'_> {
        let mut numbers: Vec<usize> = ids.iter().map(|id| self.shard_of(*id)).collect();
        // Every request locks in this order, so there is no deadlock.
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |shard| (shard, self.lock(shard, self.slots_of(shard)));
        LockedShards { table: self, shards: numbers.into_iter().map(lock).collect() }
    }
}

/// The shards of one request.
struct LockedShards<'t> {
    table: &'t Table,
    shards: Vec<(usize, Locked<'t>)>,
}

impl<'t> LockedShards<'t> {
    fn position(&self, id: Id) -> usize {
        let shard = self.table.shard_of(id);
        self.shards.partition_point(|(number, _)| *number < shard)
    }

    fn of(&self, id: Id) -> &Locked<'t> {
        &self.shards[self.position(id)].1
    }

    fn of_mut(&mut self, id: Id) -> &mut Locked<'t> {
        let position = self.position(id);
        &mut self.shards[position].1
    }

    /// Applies all changes, or none.
    fn commit_all(&mut self, writes: Vec<(usize, Write<'_>)>, room: &Room, now: Timestamp) -> Result<(), Full> {
        let mut growth = 0;
        for (charge, write) in &writes {
            let shard = self.of(write.id);
            let bytes = shard.growth(shard.find(write.id), &write.change);
            if !room.take_bytes(bytes) {
                room.return_bytes(growth);
                return Err(Full { charge: *charge, lacking: NoRoom::Log });
            }
            growth += bytes;
        }
        // Eviction may drop idle entries of this very request, so whether an entry is new is checked again
        // afterwards.
        let is_new = |write: &&Write<'_>| self.of(write.id).find(write.id).is_none();
        let new: Vec<Id> = writes.iter().map(|(_, write)| write).filter(is_new).map(|write| write.id).collect();
        for id in &new {
            self.of_mut(*id).relieve(new.len(), now);
        }
        let made = self.insert_and_overwrite(writes);
        room.return_bytes(growth);
        made
    }

    /// New entries first: they may find no room, and then the ones already inserted are removed again.
    fn insert_and_overwrite(&mut self, writes: Vec<(usize, Write<'_>)>) -> Result<(), Full> {
        let mut inserted: Vec<Id> = Vec::new();
        let mut known = Vec::new();
        for (charge, write) in writes {
            let id = write.id;
            let shard = self.of_mut(id);
            if shard.find(id).is_some() {
                known.push(write);
            } else if let Err(lacking) = shard.insert(write) {
                for id in inserted {
                    let shard = self.of_mut(id);
                    if let Some(at) = shard.find(id) {
                        shard.remove(at);
                    }
                }
                return Err(Full { charge, lacking });
            } else {
                inserted.push(id);
            }
        }
        for write in known {
            let shard = self.of_mut(write.id);
            if let Some(at) = shard.find(write.id) {
                shard.overwrite(at, write);
            }
        }
        Ok(())
    }
}

/// Does not print a million entries.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Room { max_keys, .. } = self.room;
        f.debug_struct("Table").field("keys", &self.len()).field("max_keys", &max_keys).finish_non_exhaustive()
    }
}
