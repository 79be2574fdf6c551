//! One locked shard: deciding, and applying changes. `runs` places entries, `eviction` drops them.

use tollkeeper_core::{Bucket, Change, Decision, Hold, Quota, Span, State, Timestamp, decide};

use super::area::Area;
use super::identity::Id;
use super::levels::Levels;
use super::lock::Guard;
use super::logs::{self, Logs, Need};
use super::owners::{Owner, Owners};
use super::packed::Packed;
use super::room::Room;

/// What a shard keeps beside its entries.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) used: usize,
    /// Where its entries are.
    pub(super) level: usize,
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

impl Shard {
    /// Notes the time of a charge whose clock was read before the lock was taken. If nothing was decided here at a later time,
    /// that reading is as good as one under the lock. Otherwise the clock has to be read again: time order is lock order.
    #[inline]
    pub(super) fn was_before(&mut self, now: Timestamp) -> bool {
        let is_next = self.latest <= now;
        if is_next {
            self.latest = now;
        }
        is_next
    }
}

/// Why a change could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// For a new key.
    Key,
    /// For the log of a new key.
    Log,
    /// For more entries of an existing log; others should be checked for expired logs first.
    Growth,
    /// For more slots than were reserved, after a limit was raised.
    Slots,
}

/// A bucket, and the rule that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'r> {
    pub(crate) id: Id,
    /// The name of its rule; empty for one quota without rules.
    pub(crate) rule: &'r str,
    pub(crate) quota: &'r Quota,
}

/// What a decision does to a bucket.
#[derive(Clone, Debug)]
pub(super) struct Write<'r> {
    pub(super) place: Place<'r>,
    pub(super) change: Change,
}

/// Whether a log that may not grow is thinned out, or refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinning {
    Refused,
    Allowed,
}

/// Bytes reserved for a change before it is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Granted {
    pub(super) bytes: usize,
    pub(super) owner: Owner,
}

/// A shard and its slots, while its lock is held.
#[derive(Debug)]
pub(super) struct Locked<'t> {
    pub(super) shard: Guard<'t, Shard>,
    pub(super) area: Area<'t>,
    /// Its number.
    pub(super) number: usize,
    /// Where it can grow; `None` if it cannot.
    pub(super) levels: Option<&'t Levels>,
    pub(super) room: &'t Room,
    /// The rules that share the room; `None` if there are no shares.
    pub(super) rules: Option<&'t Owners>,
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
    #[inline]
    pub(super) fn decided_at(&mut self, now: Timestamp) {
        self.shard.latest = now;
    }

    /// The state at a place that `find` returned.
    #[inline]
    pub(super) fn seen(&self, at: Option<usize>) -> Seen<'_> {
        let Some(packed) = at.map(|at| self.area.slots[at].packed()) else { return Seen::Unpacked(State::Fresh) };
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

    /// The state of a bucket.
    pub(super) fn seen_of(&self, id: Id) -> Seen<'_> {
        self.seen(self.find(id))
    }

    /// Where an existing bucket is. One that another algorithm wrote, and that needs a log now, does not count as
    /// existing.
    pub(super) fn keeps(&self, place: Place<'_>) -> Option<usize> {
        let is_kept =
            |at: &usize| !place.quota.algorithm().keeps_log() || self.area.slots[*at].packed().log_index().is_some();
        self.find(place.id).filter(is_kept)
    }

    /// Decides a charge to what is at a place that `find` returned.
    pub(super) fn charge(
        &mut self,
        at: Option<usize>,
        place: Place<'_>,
        cost: u32,
        thinning: Thinning,
        now: Timestamp,
    ) -> Result<Decision, NoRoom> {
        let (decision, change) = self.decide(at, place.quota, cost, now);
        if change != Change::None {
            self.commit(at, Write { place, change }, thinning, now)?;
        }
        Ok(decision)
    }

    /// The answer to a request of cost 1, with `remaining` as it is without that request.
    pub(super) fn peek(&self, at: Option<usize>, quota: &Quota, now: Timestamp) -> Decision {
        let (untouched, _) = self.decide(at, quota, 0, now);
        Decision { outcome: self.decide(at, quota, 1, now).0.outcome, ..untouched }
    }

    /// The fast path of nearly all requests: decides a charge to an existing bucket which can be dropped no earlier
    /// afterwards. `None`, with nothing done, if it takes more than that.
    #[inline(always)]
    pub(super) fn charge_known_bucket(&self, id: Id, quota: &Quota, cost: u32, now: Timestamp) -> Option<Decision> {
        let slot = &self.area.slots[self.find(id)?];
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
    pub(super) fn commit(
        &mut self,
        at: Option<usize>,
        write: Write<'_>,
        thinning: Thinning,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        let granted = self.grant(at, &write, thinning)?;
        let made = match at {
            Some(at) => {
                self.overwrite(at, write, granted);
                Ok(())
            }
            None => {
                self.relieve(1, self.number(write.place.rule), now);
                self.insert(write, granted)
            }
        };
        self.take_back(granted);
        made
    }

    /// Reserves the bytes that a change needs outside the table, before anything changes. The excess is returned
    /// afterwards.
    pub(super) fn grant(&self, at: Option<usize>, write: &Write<'_>, thinning: Thinning) -> Result<Granted, NoRoom> {
        let bytes =
            at.and_then(|at| self.area.slots[at].packed().log_index()).map_or(0, |index| self.shard.logs.bytes(index));
        let need = logs::need(self.seen(at).as_ref(), bytes, write.place.quota, &write.change);
        if need == Need::Nothing {
            return Ok(Granted::default());
        }
        let owner = at.map_or_else(|| self.number(write.place.rule), |at| self.owner(at));
        let rules = self.owners_count();
        let (bytes, is_granted, lacking) = match need {
            Need::Nothing => (0, true, NoRoom::Log),
            Need::New(bytes) => (bytes, self.room.take_log(bytes, owner, rules), NoRoom::Log),
            Need::More(bytes) => (bytes, self.room.take_growth(bytes, owner, rules), NoRoom::Growth),
            Need::Slots(bytes) => (bytes, self.room.take_growth(bytes, owner, rules), NoRoom::Slots),
        };
        match lacking {
            _ if is_granted => Ok(Granted { bytes, owner }),
            NoRoom::Growth if thinning == Thinning::Allowed => Ok(Granted::default()),
            _ => Err(lacking),
        }
    }

    pub(super) fn take_back(&self, granted: Granted) {
        self.room.return_bytes(granted.bytes, granted.owner);
    }

    /// Drops entries that no longer count, if room for this many new keys gets short.
    pub(super) fn relieve_for(&mut self, place: Place<'_>, new: usize, now: Timestamp) {
        self.relieve(new, self.number(place.rule), now);
    }

    /// Whether a new key would find room.
    pub(super) fn has_room(&mut self, place: Place<'_>, now: Timestamp) -> Result<(), NoRoom> {
        let owner = self.number(place.rule);
        if !self.fits(1, owner) {
            self.relieve(1, owner, now);
        }
        let is_log = place.quota.algorithm().keeps_log();
        if is_log && !self.room.fits_log(logs::first_bytes(place.quota), owner, self.owners_count()) {
            return Err(NoRoom::Log);
        }
        if self.fits(1, owner) { Ok(()) } else { Err(NoRoom::Key) }
    }

    /// Adds an entry for a new bucket.
    pub(super) fn insert(&mut self, write: Write<'_>, granted: Granted) -> Result<(), NoRoom> {
        let owner = self.number(write.place.rule);
        if !self.fits(1, owner) || !self.room.take_key(owner) {
            return Err(NoRoom::Key);
        }
        let Some(at) = self.open(write.place.id, owner) else {
            self.room.return_key(owner);
            return Err(NoRoom::Key);
        };
        self.shard.used += 1;
        self.overwrite(at, write, granted);
        Ok(())
    }

    /// Changes an entry. Any growth of a log was reserved before.
    pub(super) fn overwrite(&mut self, at: usize, write: Write<'_>, granted: Granted) {
        let Write { place: Place { id, quota, .. }, change } = write;
        let index = self.area.slots[at].packed().log_index();
        if let Change::Replace(state) = &change
            && let Some(packed) = Packed::new(state, quota)
        {
            // The rule may have used a log before it was changed.
            self.free_log(at);
            return self.set(at, packed);
        }
        let index = index.unwrap_or_else(|| self.shard.logs.add(id));
        let mut state = self.shard.logs.take(index);
        let before = self.shard.logs.bytes(index);
        let after = logs::apply(&mut state, change, quota, before + granted.bytes);
        self.room.resize(before, after, self.owner(at));
        self.shard.logs.set_bytes(index, after);
        self.put_log(at, index, state, quota);
    }

    /// The number of a rule.
    fn number(&self, rule: &str) -> Owner {
        self.rules.map_or_else(Owner::default, |rules| rules.number(rule))
    }

    /// How many rules share the room.
    pub(super) fn owners_count(&self) -> usize {
        self.rules.map_or(0, Owners::count)
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
        let Some(index) = self.area.slots[at].packed().log_index() else { return false };
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
        let index = self.area.slots[at].packed().log_index()?;
        let mut state = self.shard.logs.take(index);
        let renewed = state.renew(quota, hold, now);
        self.put_log(at, index, state, quota);
        renewed
    }

    /// Refunds up to `cost` of a bucket's latest charges; false when none of it still counts.
    pub(super) fn refund(&mut self, place: Place<'_>, cost: u32, now: Timestamp) -> bool {
        let edited = self.edit(place, now, |state, quota, now| {
            let receipts = state.latest(quota, cost, now).into_iter();
            receipts.filter(|receipt| state.refund(quota, *receipt, now)).count() > 0
        });
        edited.unwrap_or(false)
    }

    /// Changes a state. If it is new and there is no room for it, it stays unchanged.
    pub(super) fn edit<T>(
        &mut self,
        place: Place<'_>,
        now: Timestamp,
        edit: impl FnOnce(&mut State, &Quota, Timestamp) -> T,
    ) -> Result<T, NoRoom> {
        let at = self.find(place.id);
        let mut state = self.seen(at).as_ref().clone();
        let done = edit(&mut state, place.quota, now);
        let is_idle = matches!(&state, State::Log(log) if log.last().is_none()) || state == State::Fresh;
        match at {
            Some(at) if is_idle => self.remove(at),
            None if is_idle => {}
            _ if *self.seen(at).as_ref() == state => {}
            _ => self.commit(at, Write { place, change: Change::Replace(state) }, Thinning::Allowed, now)?,
        }
        Ok(done)
    }

    #[inline]
    fn set(&mut self, at: usize, packed: Packed) {
        self.area.slots[at].set_packed(packed);
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
        if let Some(index) = self.area.slots[at].packed().log_index() {
            self.room.return_bytes(self.shard.logs.bytes(index), self.owner(at));
            self.shard.logs.free(index);
        }
    }
}
