//! All shards together: the base of both the memory store and `keyed`.
//!
//! A request locks the shards of its keys in order of their numbers, reads the clock so that on each key time order
//! is lock order, decides, makes room for all new entries, and only then writes.

mod together;

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper_core::{
    Algorithm, Bucket, BucketRef, Decision, GivenBack, Hold, Key, Quota, Receipt, Span, State, Timestamp,
};

use super::contention::Contention;
use super::identity::{CLASSES, Id, Secret};
use super::levels::Levels;
use super::lock::Lock;
use super::overflow::{Overflow, Overflowed};
use super::owners::Owners;
use super::room::Room;
pub(crate) use super::runs::Lookup;
use super::runs::glimpse;
use super::shard::{Locked, NoRoom, Place, Shard, Thinning};
use crate::clock::Clock;
use crate::store::error::StoreError;

/// A hash table of states with a fixed capacity, to which it grows.
pub(crate) struct Table {
    secret: Secret,
    levels: Levels,
    /// A power of two.
    shards: Box<[Padded]>,
    calm: usize,
    room: Room,
    rules: Owners,
    overflow: Overflow,
    /// Logs are not searched for droppable ones again before this moment.
    search_logs_at: AtomicU64,
}

/// A shard on cache lines of its own: not even the pair of lines that processors fetch together is shared.
#[derive(Default)]
#[repr(align(128))]
struct Padded {
    lock: Lock<Shard>,
    contention: Contention,
}

/// There is no room for this charge, not even in a shared bucket.
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

/// What happens to a new key when there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newcomer {
    /// It is counted in a shared bucket.
    Shares,
    /// It is refused.
    Refused,
}

/// This many keys need more memory than the system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{max_keys} keys need {} MiB, which the system does not have", .max_keys.saturating_mul(Table::BYTES_PER_KEY) >> 20)]
pub struct TooManyKeys {
    /// The number of keys.
    pub max_keys: usize,
}

impl Table {
    pub(crate) const DEFAULT_MAX_KEYS: usize = 1_000_000;
    pub(crate) const DEFAULT_MAX_LOG_BYTES: usize = 64 << 20;
    /// 25 bytes per entry, of which 70 % are used when all keys are.
    pub(crate) const BYTES_PER_KEY: usize = 36;

    /// How many keys of a batch are prefetched at once.
    pub(crate) const BATCH: usize = 16;
    const USUAL_SHARDS: usize = 64;
    const KEYS_PER_SHARD: usize = 16_384;
    /// In a table with more shards than usual, they are up to this many times as large: moving one to the next level still takes a fraction of a
    /// millisecond.
    const LARGE_SHARDS: usize = 2;
    const MAX_SHARDS: usize = 1_024;
    /// A search for droppable logs looks at all of them; after one that found nothing, wait this long.
    const SEARCH_LOGS_EVERY: Span = Span::from_micros(50_000);

    /// With room for this many keys and bytes of logs, and for the shared buckets of this many rules.
    ///
    /// # Panics
    /// When the system does not have enough memory.
    pub(crate) fn new(max_keys: usize, max_log_bytes: usize, rules: usize) -> Table {
        Table::try_new(max_keys, max_log_bytes, rules).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_new(max_keys: usize, max_log_bytes: usize, rules: usize) -> Result<Table, TooManyKeys> {
        let too_many = || TooManyKeys { max_keys };
        let shards = (max_keys / Self::KEYS_PER_SHARD).checked_next_power_of_two().ok_or_else(too_many)?;
        let many = (shards / Self::LARGE_SHARDS).min(Self::MAX_SHARDS);
        let shards = shards.clamp(1, Self::USUAL_SHARDS).max(many);
        let share = max_keys.div_ceil(shards);
        // At most 70 % full when all keys are used.
        let slots_per_shard = (share.saturating_mul(10) / 7).saturating_add(1).max(8);
        Ok(Table {
            secret: Secret::random(),
            levels: Levels::new(slots_per_shard, shards).ok_or_else(too_many)?,
            shards: (0..shards).map(|_| Padded::default()).collect(),
            calm: share - share / 4,
            room: Room::new(max_keys, max_log_bytes),
            rules: Owners::default(),
            overflow: Overflow::new(rules).ok_or_else(too_many)?,
            search_logs_at: AtomicU64::new(0),
        })
    }

    /// From now on these rules share the room.
    pub(crate) fn expect_rules<'r>(&self, rules: impl IntoIterator<Item = &'r str>) {
        rules.into_iter().for_each(|rule| _ = self.rules.number(rule));
    }

    /// How many keys each rule holds. With more than 255 rules some are counted together.
    pub(crate) fn keys_by_rule(&self) -> Vec<(Box<str>, usize)> {
        self.rules.names().into_iter().map(|(name, owner)| (name, self.room.keys_of(owner))).collect()
    }

    /// What was counted in shared buckets.
    pub(crate) fn overflowed(&self) -> Overflowed {
        self.overflow.counts()
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

    /// The memory that the table takes when it is full: all slots of the last level, and the current logs.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.levels.bytes() + size_of_val(&*self.shards);
        entries + self.room.log_bytes() + self.overflow.memory_bytes()
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
        let (slots, spread) = self.levels.likely(self.shard_of(id));
        slots[spread.home(id)].prefetch();
    }

    /// Decides one charge.
    #[inline(always)]
    pub(crate) fn charge(&self, place: Place<'_>, cost: u32, clock: &Clock) -> Result<Decision, Full> {
        // The two paths do not join: a decision that could come from either would be moved through memory, which
        // takes longer than everything else.
        match self.charge_known_bucket(place.id, place.quota, cost, clock.now(), Lookup::Single) {
            Some(decision) => Ok(decision),
            None => self.charge_slowly(place, cost, Newcomer::Shares, clock),
        }
    }

    /// Decides one charge if its bucket exists and nobody else uses it just now. The clock was read before: that takes as long as hashing a key, and
    /// the processor does both at once.
    ///
    /// The bucket is first read without the lock. A denial writes nothing, so it is valid if nothing was written in between,
    /// and denied requests do not wait for each other. An admission takes the lock only to write, if it has not been taken since. Whoever
    /// finds that it was decides again under the lock, and waits a little first where that happens all the time.
    #[inline(always)]
    pub(crate) fn charge_known_bucket(
        &self,
        id: Id,
        quota: &Quota,
        cost: u32,
        read: Timestamp,
        lookup: Lookup,
    ) -> Option<Decision> {
        if !quota.algorithm().has_burst() {
            return None;
        }
        let number = self.shard_of(id);
        let Padded { lock, contention } = &self.shards[number];
        let Some(moment) = lock.moment() else {
            contention.step_aside(read);
            return None;
        };
        let (slots, spread) = self.levels.likely(number);
        let (slot, bucket) = glimpse(slots, spread, id, lookup)?;
        match Bucket::decide_own(quota, cost, bucket, read)? {
            (decision, None) if lock.is_still(moment) => Some(decision),
            // A bucket that can be dropped earlier than before takes more than a write.
            (decision, Some(next)) if next.full_at >= bucket.full_at => {
                let Some(mut shard) = lock.lock_at(moment) else {
                    contention.step_aside(read);
                    return None;
                };
                shard.was_before(read).then(|| {
                    slot.set_packed(next.into());
                    decision
                })
            }
            _ => None,
        }
    }

    /// The same under the lock, which others may hold.
    fn charge_locked_bucket(&self, place: Place<'_>, cost: u32, clock: &Clock) -> Option<Decision> {
        if !place.quota.algorithm().has_burst() {
            return None;
        }
        let mut shard = self.lock_for(place.id);
        let now = clock.now();
        shard.decided_at(now);
        shard.charge_known_bucket(place.id, place.quota, cost, now)
    }

    #[inline(never)]
    pub(crate) fn charge_slowly(
        &self,
        place: Place<'_>,
        cost: u32,
        newcomer: Newcomer,
        clock: &Clock,
    ) -> Result<Decision, Full> {
        if let Some(decision) = self.charge_locked_bucket(place, cost, clock) {
            return Ok(decision);
        }
        let tried = match self.try_charge(place, cost, Thinning::Refused, clock) {
            Err(NoRoom::Log | NoRoom::Growth | NoRoom::Slots) => {
                self.drop_logs(clock.now());
                self.try_charge(place, cost, Thinning::Allowed, clock)
            }
            other => other,
        };
        match tried {
            Err(lacking @ (NoRoom::Key | NoRoom::Log)) if newcomer == Newcomer::Shares => {
                self.charge_newcomer(place, cost, lacking, clock)
            }
            other => other,
        }
        .inspect(|_| self.levels.used_by(self.room.keys()))
        .map_err(|lacking| Full { charge: 0, lacking })
    }

    fn try_charge(&self, place: Place<'_>, cost: u32, thinning: Thinning, clock: &Clock) -> Result<Decision, NoRoom> {
        let mut shard = self.lock_for(place.id);
        let now = clock.now();
        shard.decided_at(now);
        let at = shard.find(place.id);
        if at.is_none() && cost == 0 {
            // A new key without room gets the answer that it would get.
            shard.has_room(place, now)?;
        }
        shard.charge(at, place, cost, thinning, now)
    }

    /// Decides one charge of a key that found no room.
    #[cold]
    fn charge_newcomer(&self, place: Place<'_>, cost: u32, lacking: NoRoom, clock: &Clock) -> Result<Decision, NoRoom> {
        let mut own = self.lock_for(place.id);
        let mut shared = self.overflow.lock();
        let now = clock.now();
        own.decided_at(now);
        // A key that got its own bucket in between is counted there.
        if let Some(at) = own.keeps(place) {
            return own.charge(Some(at), place, cost, Thinning::Allowed, now);
        }
        let place = self.shared_place(place, 0);
        let decision = shared.charge(shared.find(place.id), place, cost, Thinning::Allowed, now)?;
        self.overflow.count(lacking);
        Ok(decision)
    }

    /// The shared bucket of a new key: that of its class, or of one of the next.
    fn shared_place<'r>(&self, place: Place<'r>, nth: u8) -> Place<'r> {
        let class = (place.id.class() + nth) % CLASSES;
        Place { id: self.secret.overflow(place.rule, place.quota, class), ..place }
    }

    pub(crate) fn place_of<'r>(&self, bucket: BucketRef<'r>) -> Place<'r> {
        Place { id: self.secret.bucket(bucket.rule, bucket.key), rule: bucket.rule, quota: bucket.quota }
    }

    /// The bucket's answer to a request of cost 1, with `remaining` as it is without that request. A key that would
    /// find no room gets the answer of its shared bucket.
    pub(crate) fn peek(&self, place: Place<'_>, clock: &Clock) -> Decision {
        let mut own = self.lock_for(place.id);
        let (at, now) = (own.find(place.id), clock.now());
        if at.is_none() && own.has_room(place, now).is_err() {
            let shared = self.overflow.lock();
            return shared.peek(shared.find(self.shared_place(place, 0).id), place.quota, now);
        }
        own.peek(at, place.quota, now)
    }

    /// Resets a bucket; false when it had nothing to reset. A shared bucket stays unchanged.
    pub(crate) fn reset(&self, id: Id, quota: &Quota, clock: &Clock) -> bool {
        self.lock_for(id).reset(id, quota, clock.now())
    }

    /// Releases a slot of a `concurrency` quota.
    pub(crate) fn release(&self, place: Place<'_>, hold: Hold, clock: &Clock) -> bool {
        let is_released = self.lock_for(place.id).release(place.id, place.quota, hold, clock.now());
        is_released || {
            let mut shared = self.overflow.lock();
            let mut places = self.shared_places(place);
            places.any(|place| shared.release(place.id, place.quota, hold, clock.now()))
        }
    }

    /// Holds a slot of a `concurrency` quota for another period.
    pub(crate) fn renew(&self, place: Place<'_>, hold: Hold, clock: &Clock) -> Option<Hold> {
        let renewed = self.lock_for(place.id).renew(place.id, place.quota, hold, clock.now());
        renewed.or_else(|| {
            let mut shared = self.overflow.lock();
            let mut places = self.shared_places(place);
            places.find_map(|place| shared.renew(place.id, place.quota, hold, clock.now()))
        })
    }

    /// Where the slot of a new key may be. Two keys of one request never share a bucket, so it may be in that of the
    /// next class.
    fn shared_places<'r>(&self, place: Place<'r>) -> impl Iterator<Item = Place<'r>> {
        (0..2).map(move |nth| self.shared_place(place, nth))
    }

    /// Refunds up to `cost` of a bucket's latest charges.
    pub(crate) fn refund(&self, place: Place<'_>, cost: u32, clock: &Clock) -> bool {
        self.lock_for(place.id).refund(place, cost, clock.now())
    }

    /// Corrects a charge to its actual cost; returns how much was refunded.
    pub(crate) fn settle(
        &self,
        place: Place<'_>,
        receipt: Receipt,
        cost: u32,
        refunded: u64,
        clock: &Clock,
    ) -> GivenBack {
        let settle = |state: &mut State, quota: &Quota, now| state.settle(quota, receipt, cost, refunded, now);
        let settled = self.lock_for(place.id).edit(place, clock.now(), settle);
        if place.quota.algorithm() == Algorithm::Concurrency && settled == Ok(GivenBack::default()) {
            let hold = Hold { at: receipt.at, nth: receipt.nth };
            let back = if self.release(place, hold, clock) { receipt.cost } else { 0 };
            return GivenBack { refunded: back, counted: back };
        }
        settled.unwrap_or_else(|_| {
            // More was used than estimated, by a key without a bucket of its own.
            let edited = self.overflow.lock().edit(self.shared_place(place, 0), clock.now(), settle);
            edited.unwrap_or_default()
        })
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
        (0..self.shards.len()).map(|shard| self.lock(shard).drop_logs(now)).sum::<usize>() > 0
    }

    #[cfg(test)]
    pub(super) fn each_shard(&self) -> impl Iterator<Item = Locked<'_>> {
        (0..self.shards.len()).map(|shard| self.lock(shard))
    }

    #[inline]
    fn shard_of(&self, id: Id) -> usize {
        // High bits; the home slot uses the lowest.
        (id.place >> 54) as usize & (self.shards.len() - 1)
    }

    /// Locks the shard of `id`, while its entry is being prefetched.
    #[inline]
    fn lock_for(&self, id: Id) -> Locked<'_> {
        let shard = self.shard_of(id);
        let (slots, spread) = self.levels.likely(shard);
        slots[spread.home(id)].prefetch();
        self.lock(shard)
    }

    #[inline]
    fn lock(&self, number: usize) -> Locked<'_> {
        let shard = self.shards[number].lock.lock();
        let (level, reached) = (shard.level, self.levels.reached());
        let mut locked = Locked {
            shard,
            area: self.levels.area(level, number),
            number,
            levels: Some(&self.levels),
            room: &self.room,
            rules: Some(&self.rules),
            calm: self.calm,
        };
        if level < reached {
            locked.catch_up(reached);
        }
        locked
    }
}

/// Does not print a million entries.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Room { max_keys, .. } = self.room;
        f.debug_struct("Table").field("keys", &self.len()).field("max_keys", &max_keys).finish_non_exhaustive()
    }
}
