//! What a shard drops to make room.
//!
//! Nothing is dropped that still counts, and while there is plenty of room nothing at all: a clock that runs back
//! for a moment then finds everything as it was.

use tollkeeper_core::Timestamp;

use super::shard::Locked;

/// How many slots a new key examines in a shard that fills up.
const EXAMINED: usize = 8;
/// How many it examines in a full one.
const EXAMINED_WHEN_FULL: usize = 64;

impl Locked<'_> {
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
    pub(super) fn fits(&self, new: usize) -> bool {
        self.shard.used + new <= self.slots.len() - self.slots.len() / 8 && self.room.fits(new)
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
}
