//! How many instances share the limits, by their heartbeats.
//!
//! While the store is unreachable, each instance enforces its share of a limit: the limit divided by the number of
//! sharers. The shares add up to the limit only if nobody who is still deciding is left out, so an instance that is
//! not heard of counts for ten more minutes (it may be cut off from the store and deciding by itself), unless it has
//! signed off. A server that has lost its data does not lower the number either: what was known before counts for
//! ten minutes.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::instant::Instant;

/// What this instance knows of all.
pub(super) struct Fleet {
    /// The name of this instance.
    pub(super) name: String,
    alive: AtomicU32,
    sharers: AtomicU32,
    losses: AtomicU64,
    has_left: AtomicBool,
    memory: Mutex<Memory>,
}

/// What has to be remembered between two heartbeats.
#[derive(Default)]
struct Memory {
    last: Option<Instant>,
    /// How many sharers were known when the server lost its data, and until when they count.
    before_loss: Option<(u32, Instant)>,
}

/// What a heartbeat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// All that have not signed off and were heard of in the last ten minutes.
    pub(super) sharers: u32,
    /// Those that were heard of in the last seconds.
    pub(super) alive: u32,
    /// Whether the server did not know this instance before.
    pub(super) is_new: bool,
}

/// Whether the server has kept its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    /// It knew this instance, and no longer does.
    Lost,
}

impl Fleet {
    /// After three missed heartbeats an instance no longer counts as alive.
    pub(super) const GONE_AFTER: Duration = Duration::from_millis(3_500);
    /// How long an instance that did not sign off keeps its share.
    pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

    /// Known to nobody yet.
    pub(super) fn new() -> Fleet {
        Fleet {
            name: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            alive: AtomicU32::new(1),
            sharers: AtomicU32::new(1),
            losses: AtomicU64::new(0),
            has_left: AtomicBool::new(false),
            memory: Mutex::default(),
        }
    }

    /// The instances that were alive at the last heartbeat.
    pub(super) fn alive(&self) -> u32 {
        self.alive.load(Relaxed)
    }

    /// Among how many a limit is divided while the store is unreachable.
    pub(super) fn sharers(&self) -> u32 {
        self.sharers.load(Relaxed)
    }

    /// How often the server was found to have lost its data.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Relaxed)
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Relaxed)
    }

    /// No more heartbeats.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Relaxed);
    }

    /// Records a heartbeat that succeeded. One that fails changes nothing.
    pub(super) fn note(&self, counted: Counted, now: Instant) -> Kept {
        let Counted { mut sharers, alive, is_new } = counted;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let was_known = memory.last.is_some_and(|last| now < last + Fleet::FORGOTTEN_AFTER);
        memory.last = Some(now);
        let kept = if is_new && was_known { Kept::Lost } else { Kept::Yes };
        if kept == Kept::Lost {
            memory.before_loss = Some((self.sharers(), now + Fleet::FORGOTTEN_AFTER));
            self.losses.fetch_add(1, Relaxed);
        }
        match memory.before_loss {
            Some((before, until)) if now < until => sharers = sharers.max(before),
            _ => memory.before_loss = None,
        }
        self.alive.store(alive.max(1), Relaxed);
        self.sharers.store(sharers.max(1), Relaxed);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(sharers: u32, is_new: bool) -> Counted {
        Counted { sharers, alive: sharers, is_new }
    }

    /// Redis flapped and came back empty. Three instances sent their first heartbeats one after the other, counted 1, 2
    /// and 3, and admitted 110 requests a second of 60 when it went down again.
    #[test]
    fn a_server_that_has_lost_its_data_does_not_lower_the_count() {
        let (fleet, start) = (Fleet::new(), Instant::now());
        assert_eq!(fleet.note(counted(3, true), start), Kept::Yes, "its first heartbeat");
        let second = |second| start + Duration::from_secs(second);
        assert_eq!(fleet.note(counted(1, true), second(1)), Kept::Lost);
        assert_eq!((fleet.sharers(), fleet.alive(), fleet.losses()), (3, 1, 1));
        assert_eq!(fleet.note(counted(2, false), second(2)), Kept::Yes);
        assert_eq!(fleet.sharers(), 3);
        assert_eq!(fleet.note(counted(1, true), second(3)), Kept::Lost, "empty once more");
        assert_eq!(fleet.sharers(), 3);
        fleet.note(counted(4, false), second(4));
        assert_eq!(fleet.sharers(), 4, "a new one counts at once");
        fleet.note(counted(2, false), second(604));
        assert_eq!(fleet.sharers(), 2, "nobody else was heard of for ten minutes");
    }

    #[test]
    fn an_instance_that_signs_off_frees_its_share_at_once() {
        let (fleet, start) = (Fleet::new(), Instant::now());
        fleet.note(counted(3, true), start);
        fleet.note(counted(2, false), start + Duration::from_secs(1));
        assert_eq!(fleet.sharers(), 2);
    }

    #[test]
    fn being_away_for_long_is_not_taken_for_a_loss() {
        let (fleet, start) = (Fleet::new(), Instant::now());
        fleet.note(counted(3, true), start);
        assert_eq!(fleet.note(counted(3, true), start + Fleet::FORGOTTEN_AFTER), Kept::Yes);
        assert_eq!(fleet.losses(), 0);
    }
}
