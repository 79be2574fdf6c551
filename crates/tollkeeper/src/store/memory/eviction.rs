//! Eviction: what a shard drops to make room.
//!
//! Only entries that no longer count are dropped, and none at all while there is plenty of room: a clock that runs
//! back for a moment then finds everything unchanged.

use tollkeeper_core::Timestamp;

use super::owners::Owner;
use super::shard::Locked;

/// How many slots each new key examines in a shard that is filling up.
const EXAMINED: usize = 8;
/// How many each new key examines in a full shard.
const EXAMINED_WHEN_FULL: usize = 64;

impl Locked<'_> {
    /// Drops entries that no longer count when room gets short: a few for every new key, and all of them when the
    /// `new` keys of a request do not fit. A table that can still grow does so first.
    pub(super) fn relieve(&mut self, new: usize, owner: Owner, now: Timestamp) {
        self.grow_for(new);
        let full = !self.fits(new, owner);
        if now < self.shard.earliest || self.shard.used < self.calm && !full {
            return;
        }
        self.shard.debt = self.shard.debt.saturating_sub(EXAMINED_WHEN_FULL);
        for _ in 0..if full { EXAMINED_WHEN_FULL } else { EXAMINED } {
            let at = self.shard.hand;
            self.drop_expired(at, now);
            self.shard.hand = self.area.after(at);
        }
        if !self.fits(new, owner) {
            self.sweep(now);
        }
    }

    /// Examines every slot. The cost is amortized: no further sweep until enough new keys have come. Otherwise one
    /// key that is always just about to expire would make every request of a flood examine the whole shard.
    #[cold]
    fn sweep(&mut self, now: Timestamp) {
        if self.shard.debt > 0 {
            return;
        }
        self.shard.debt = self.area.slots.len();
        let mut earliest = None;
        for at in 0..self.area.slots.len() {
            let kept = self.drop_expired(at, now);
            earliest = earliest.into_iter().chain(kept).min();
        }
        self.shard.earliest = earliest.unwrap_or(now);
    }

    /// Drops expired entries at a slot, also those that move up into it; until when the remaining one counts.
    fn drop_expired(&mut self, at: usize, now: Timestamp) -> Option<Timestamp> {
        while self.area.slots[at].tag() != 0 {
            let until = self.area.slots[at].packed().until();
            if until > now {
                return Some(until);
            }
            self.remove(at);
        }
        None
    }

    /// Whether new keys of a rule have room. A shard is never filled completely, so that probes stay short.
    pub(super) fn fits(&self, new: usize, owner: Owner) -> bool {
        let is_loose = self.shard.used + new <= self.area.slots.len() - self.area.slots.len() / 8;
        is_loose && self.room.fits(new, owner, self.owners_count())
    }

    /// Drops the logs that no longer count; returns how many.
    pub(super) fn drop_logs(&mut self, now: Timestamp) -> usize {
        let expired = self.shard.logs.expired(now);
        for id in &expired {
            if let Some(at) = self.find(*id) {
                self.remove(at);
            }
        }
        expired.len()
    }
}
