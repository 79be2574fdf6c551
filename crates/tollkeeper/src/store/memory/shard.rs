//! One locked shard: deciding, and applying changes. `runs` places entries, `eviction` drops them.

use tollkeeper_core::{Bucket, Change, Decision, Hold, Quota, Span, State, Timestamp, decide};

use super::identity::Id;
use super::lock::Guard;
use super::logs::{self, Logs};
use super::packed::Packed;
use super::room::Room;
use super::slots::Slot;
use crate::clock::Clock;

/// What a shard keeps beside its entries.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) used: usize,
    pub(super) logs: Logs,
    /// When the last charge was decided.
    latest: Timestamp,
    /// Where the next few entries are examined (the hand of a clock).
    pub(super) hand: usize,
    /// No entry can be dropped before this moment.
    pub(super) earliest: Timestamp,
    /// How many slots the last sweep examined that new keys have not yet paid for.
    pub(super) debt: usize,
}

/// Why a change could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// For a new key.
    Key,
    /// For a longer log.
    Log,
}

/// What a decision does to a bucket.
#[derive(Clone, Debug)]
pub(super) struct Write<'q> {
    pub(super) id: Id,
    pub(super) quota: &'q Quota,
    pub(super) change: Change,
}

/// A shard and its slots, while its lock is held.
#[derive(Debug)]
pub(super) struct Locked<'t> {
    pub(super) shard: Guard<'t, Shard>,
    pub(super) slots: &'t [Slot],
    pub(super) room: &'t Room,
    /// Below this many keys nothing is dropped.
    pub(super) calm: usize,
}

/// A state as stored.
pub(super) enum Seen<'s> {
    Unpacked(State),
    Log(&'s State),
}

impl AsRef<State> for Seen<'_> {
    #[inline]
    fn as_ref(&self) -> &State {
        match self {
            Seen::Unpacked(state) => state,
            Seen::Log(state) => state,
        }
    }
}

impl Locked<'_> {
    /// The time of a charge whose clock was read before the lock was taken.
    ///
    /// If nothing was decided here at a later time, that reading is as good as one under the lock. Otherwise the
    /// clock is read again. Either way, time order is lock order.
    #[inline]
    pub(super) fn time(&mut self, read: Timestamp, clock: &Clock) -> Timestamp {
        let now = if read < self.shard.latest { clock.now() } else { read };
        self.decided_at(now);
        now
    }

    #[inline]
    pub(super) fn decided_at(&mut self, now: Timestamp) {
        self.shard.latest = now;
    }

    /// The state at a place that `find` returned.
    #[inline]
    pub(super) fn seen(&self, at: Option<usize>) -> Seen<'_> {
        let Some(packed) = at.map(|at| self.slots[at].packed()) else { return Seen::Unpacked(State::Fresh) };
        match (packed.state(), packed.log_index()) {
            (None, Some(index)) => Seen::Log(self.shard.logs.state(index)),
            (state, _) => Seen::Unpacked(state.unwrap_or_default()),
        }
    }

    #[inline]
    pub(super) fn decide(&self, at: Option<usize>, quota: &Quota, cost: u32, now: Timestamp) -> (Decision, Change) {
        match self.seen(at) {
            Seen::Unpacked(state) => decide(quota, cost, &state, now),
            Seen::Log(state) => decide(quota, cost, state, now),
        }
    }

    /// The fast path of nearly all requests: decides a charge to an existing bucket which can be dropped no earlier
    /// afterwards. `None`, with nothing done, if it takes more than that.
    #[inline(always)]
    pub(super) fn charge_known_bucket(&self, id: Id, quota: &Quota, cost: u32, now: Timestamp) -> Option<Decision> {
        let slot = &self.slots[self.find(id)?];
        let bucket = slot.packed().bucket()?;
        let (decision, next) = Bucket::decide(quota, cost, Some(bucket), now);
        if let Some(next) = next {
            if next.full_at < bucket.full_at {
                return None;
            }
            slot.set_packed(Packed::from(next));
        }
        Some(decision)
    }

    /// Applies one change.
    pub(super) fn commit(&mut self, at: Option<usize>, write: Write<'_>, now: Timestamp) -> Result<(), NoRoom> {
        let growth = self.growth(at, &write.change);
        if !self.room.take_bytes(growth) {
            return Err(NoRoom::Log);
        }
        let made = match at {
            Some(at) => {
                self.overwrite(at, write);
                Ok(())
            }
            None => {
                self.relieve(1, now);
                self.insert(write)
            }
        };
        self.room.return_bytes(growth);
        made
    }

    /// The bytes that a change may need outside the table. They are reserved before anything changes, and the excess
    /// is returned afterwards.
    pub(super) fn growth(&self, at: Option<usize>, change: &Change) -> usize {
        logs::growth(self.seen(at).as_ref(), change)
    }

    /// Adds an entry for a new bucket.
    pub(super) fn insert(&mut self, write: Write<'_>) -> Result<(), NoRoom> {
        if !self.fits(1) || !self.room.take_key() {
            return Err(NoRoom::Key);
        }
        let Some(at) = self.open(write.id) else {
            self.room.return_key();
            return Err(NoRoom::Key);
        };
        self.shard.used += 1;
        self.overwrite(at, write);
        Ok(())
    }

    /// Changes an entry. Any growth of a log was reserved before.
    pub(super) fn overwrite(&mut self, at: usize, write: Write<'_>) {
        let index = self.slots[at].packed().log_index();
        if let Change::Replace(state) = &write.change
            && let Some(packed) = Packed::new(state, write.quota)
        {
            // The rule may have used a log before it was changed.
            self.free_log(at);
            return self.set(at, packed);
        }
        let index = index.unwrap_or_else(|| self.shard.logs.add(write.id));
        let mut state = self.shard.logs.take(index);
        let before = logs::bytes(&state);
        logs::apply(&mut state, write.change);
        self.room.resize(before, logs::bytes(&state));
        self.put_log(at, index, state, write.quota);
    }

    /// Resets a bucket; false when it had nothing to reset.
    pub(super) fn reset(&mut self, id: Id, quota: &Quota, now: Timestamp) -> bool {
        let Some(at) = self.find(id) else { return false };
        let counted = self.decide(Some(at), quota, 0, now).0.reset_after > Span::ZERO;
        self.remove(at);
        counted
    }

    /// Releases a slot of a `concurrency` quota.
    pub(super) fn release(&mut self, id: Id, quota: &Quota, hold: Hold, now: Timestamp) -> bool {
        let Some(at) = self.find(id) else { return false };
        let Some(index) = self.slots[at].packed().log_index() else { return false };
        let mut state = self.shard.logs.take(index);
        let released = state.release(hold);
        let is_empty = matches!(&state, State::Log(log) if log.last().is_none());
        self.put_log(at, index, state, quota);
        if is_empty {
            self.remove(at);
        }
        released && hold.at + quota.period() > now
    }

    /// Holds a slot of a `concurrency` quota for another period.
    pub(super) fn renew(&mut self, id: Id, quota: &Quota, hold: Hold, now: Timestamp) -> Option<Hold> {
        let at = self.find(id)?;
        let index = self.slots[at].packed().log_index()?;
        let mut state = self.shard.logs.take(index);
        let renewed = state.renew(quota, hold, now);
        self.put_log(at, index, state, quota);
        renewed
    }

    /// Refunds up to `cost` of a bucket's latest charges; false when none of it still counts.
    pub(super) fn give_back(&mut self, id: Id, quota: &Quota, cost: u32, now: Timestamp) -> bool {
        self.edit(id, quota, now, |state, now| {
            let receipts = state.latest(quota, cost, now).into_iter();
            receipts.filter(|receipt| state.refund(quota, *receipt, now)).count() > 0
        })
    }

    /// Changes a state. If there is no room for a new or larger one, it stays unchanged.
    pub(super) fn edit<T>(
        &mut self,
        id: Id,
        quota: &Quota,
        now: Timestamp,
        edit: impl FnOnce(&mut State, Timestamp) -> T,
    ) -> T {
        let at = self.find(id);
        let mut state = self.seen(at).as_ref().clone();
        let done = edit(&mut state, now);
        let is_idle = matches!(&state, State::Log(log) if log.last().is_none()) || state == State::Fresh;
        match at {
            Some(at) if is_idle => self.remove(at),
            None if is_idle => {}
            _ if *self.seen(at).as_ref() == state => {}
            _ => _ = self.commit(at, Write { id, quota, change: Change::Replace(state) }, now),
        }
        done
    }

    #[inline]
    fn set(&mut self, at: usize, packed: Packed) {
        self.slots[at].set_packed(packed);
        let until = packed.until();
        if until < self.shard.earliest {
            self.shard.earliest = until;
        }
    }

    fn put_log(&mut self, at: usize, index: u32, state: State, quota: &Quota) {
        let newest = if let State::Log(log) = &state { log.last() } else { None };
        let packed = Packed::log(newest.unwrap_or_default(), quota, index);
        self.shard.logs.put(index, state, packed.until());
        self.set(at, packed);
    }

    pub(super) fn free_log(&mut self, at: usize) {
        if let Some(index) = self.slots[at].packed().log_index() {
            self.room.return_bytes(logs::bytes(self.shard.logs.state(index)));
            self.shard.logs.free(index);
        }
    }
}
