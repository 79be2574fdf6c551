//! One shard under its lock: an open-addressing table with linear probing.
//!
//! The entries of a run are sorted by their home slots, and each knows its distance from home. So a search ends at
//! the first entry that is nearer to its home than the one searched for would be, and a removal moves the rest of
//! the run back by one, leaving no tombstone.
//!
//! Nothing is dropped that still counts, and while there is plenty of room nothing at all: a clock that runs back
//! for a moment then finds everything as it was.

use tollgate_core::{Bucket, Change, Decision, Hold, Quota, State, Timestamp, decide};

use super::identity::{DISTANCE, Id};
use super::lock::Guard;
use super::logs::{self, Logs};
use super::packed::Packed;
use super::room::Room;
use super::slots::Slot;
use crate::clock::Clock;

/// What a shard knows beside its entries.
#[derive(Debug, Default)]
pub(super) struct Shard {
    used: usize,
    logs: Logs,
    /// When the last charge was decided.
    latest: Timestamp,
    /// Where the next few entries are examined.
    hand: usize,
    /// No entry can be dropped before this moment.
    earliest: Timestamp,
    /// How many slots the last sweep looked at that new keys have not paid for yet.
    debt: usize,
}

/// How many slots a new key examines in a shard that fills up.
const EXAMINED: usize = 8;
/// How many it examines in a full one.
const EXAMINED_WHEN_FULL: usize = 64;
/// The farthest that an entry may be from home, plus 1. Keys are spread by a keyed hash and a table is never more
/// than 7/8 full, so that nobody will ever see an entry as far as that.
const MAX_DISTANCE: u64 = DISTANCE - 1;

/// Why a change could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// For another key.
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
    /// Below so many keys nothing is dropped.
    pub(super) calm: usize,
}

/// A state as it is kept.
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
    /// If nobody has decided here since, that is as good as having held the lock all the while. Else the clock is
    /// read again. Either way time order is lock order.
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

    /// Where the entry of `id` is.
    #[inline]
    pub(super) fn find(&self, id: Id) -> Option<usize> {
        let mut at = self.home(id);
        let mut wanted = id.tag;
        loop {
            let found = self.slots[at].tag();
            if found == wanted {
                return Some(at);
            }
            if found & DISTANCE < wanted & DISTANCE {
                return None;
            }
            wanted += 1;
            at = self.after(at);
        }
    }

    /// What is known at a place that `find` returned.
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

    /// Decides a charge to a bucket that is there already and can be dropped no earlier afterwards: the way of nearly
    /// all requests. `None`, and nothing was done, if it takes more than that.
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

    /// Makes one change.
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

    /// The bytes that a change may need outside the table. They are taken before anything is changed, and returned
    /// once what was really needed has been counted.
    pub(super) fn growth(&self, at: Option<usize>, change: &Change) -> usize {
        logs::growth(self.seen(at).as_ref(), change)
    }

    /// Adds the entry of a bucket that has none.
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

    /// Changes an entry. What a log needs more was taken before.
    pub(super) fn overwrite(&mut self, at: usize, write: Write<'_>) {
        let index = self.slots[at].packed().log_index();
        if let Change::Replace(state) = &write.change
            && let Some(packed) = Packed::new(state, write.quota)
        {
            // The rule may have kept a log before it was changed.
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

    /// Forgets a bucket; false when it was as if never used.
    pub(super) fn reset(&mut self, id: Id, quota: &Quota, now: Timestamp) -> bool {
        let Some(at) = self.find(id) else { return false };
        let counted = self.seen(Some(at)).as_ref().until(quota) > now;
        self.remove(at);
        counted
    }

    /// Gives a slot of a `concurrency` quota back.
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

    /// Drops the logs that no longer count; how many there were.
    pub(super) fn drop_logs(&mut self, now: Timestamp) -> usize {
        let expired = self.shard.logs.expired(now);
        for id in &expired {
            if let Some(at) = self.find(*id) {
                self.remove(at);
            }
        }
        expired.len()
    }

    /// Drops what no longer counts, if room gets short: a little for every new key, and all there is when the `new`
    /// keys of a request do not fit.
    pub(super) fn relieve(&mut self, new: usize, now: Timestamp) {
        let full = !self.fits(new);
        if now < self.shard.earliest || self.shard.used < self.calm && !full {
            return;
        }
        self.shard.debt = self.shard.debt.saturating_sub(EXAMINED_WHEN_FULL);
        for _ in 0..if full { EXAMINED_WHEN_FULL } else { EXAMINED } {
            let at = self.shard.hand;
            self.drop_expired(at, now);
            self.shard.hand = self.after(at);
        }
        if !self.fits(new) {
            self.sweep(now);
        }
    }

    /// Looks at every slot. Until that is paid for, the few that each new key examines have to do: else one key that
    /// always has just not expired would make every request of a flood look at the whole shard.
    #[cold]
    fn sweep(&mut self, now: Timestamp) {
        if self.shard.debt > 0 {
            return;
        }
        self.shard.debt = self.slots.len();
        let mut earliest = None;
        for at in 0..self.slots.len() {
            let kept = self.drop_expired(at, now);
            earliest = earliest.into_iter().chain(kept).min();
        }
        self.shard.earliest = earliest.unwrap_or(now);
    }

    /// Empties a slot of what no longer counts, as often as something moves up; says until when the rest counts.
    fn drop_expired(&mut self, at: usize, now: Timestamp) -> Option<Timestamp> {
        while self.slots[at].tag() != 0 {
            let until = self.slots[at].packed().until();
            if until > now {
                return Some(until);
            }
            self.remove(at);
        }
        None
    }

    /// A shard is never filled to the last slot, so that searches end soon.
    fn fits(&self, new: usize) -> bool {
        self.shard.used + new <= self.slots.len() - self.slots.len() / 8 && self.room.fits(new)
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

    fn free_log(&mut self, at: usize) {
        if let Some(index) = self.slots[at].packed().log_index() {
            self.room.return_bytes(logs::bytes(self.shard.logs.state(index)));
            self.shard.logs.free(index);
        }
    }

    /// Makes a free slot where `id` belongs, by moving those on by one that are nearer to their homes. `None`, and
    /// nothing moved, if one would get too far.
    fn open(&self, id: Id) -> Option<usize> {
        let mut place = self.home(id);
        let mut tag = id.tag;
        while self.slots[place].tag() & DISTANCE >= tag & DISTANCE {
            place = self.after(place);
            tag += 1;
        }
        let mut free = place;
        let mut farthest = tag & DISTANCE;
        while self.slots[free].tag() != 0 {
            farthest = farthest.max((self.slots[free].tag() & DISTANCE) + 1);
            free = self.after(free);
        }
        if farthest > MAX_DISTANCE {
            return None;
        }
        while free != place {
            let before = self.before(free);
            self.move_entry(before, free, self.slots[before].tag() + 1);
            free = before;
        }
        self.slots[place].set_tag(tag);
        self.slots[place].set_packed(Packed::default());
        Some(place)
    }

    /// Frees a slot, and moves those back by one that were pushed away from their homes.
    pub(super) fn remove(&mut self, at: usize) {
        self.free_log(at);
        self.shard.used -= 1;
        self.room.return_key();
        let mut free = at;
        loop {
            let next = self.after(free);
            let tag = self.slots[next].tag();
            // Empty, or at home.
            if tag & DISTANCE <= 1 {
                break;
            }
            self.move_entry(next, free, tag - 1);
            free = next;
        }
        self.slots[free].set_tag(0);
    }

    fn move_entry(&self, from: usize, to: usize, tag: u64) {
        self.slots[to].set_tag(tag);
        self.slots[to].set_packed(self.slots[from].packed());
    }

    #[inline]
    fn home(&self, id: Id) -> usize {
        home(id, self.slots.len())
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn before(&self, at: usize) -> usize {
        at.checked_sub(1).unwrap_or(self.slots.len() - 1)
    }
}

/// The slot of a shard at which a search for `id` starts.
#[inline]
pub(super) fn home(id: Id, slots: usize) -> usize {
    (((id.place & u64::from(u32::MAX)) * slots as u64) >> 32) as usize
}
