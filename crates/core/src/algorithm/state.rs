//! What is remembered of a key, and what a decision does to it.

use super::fixed_window::Window;
use super::log::{Entry, Log};
use super::sliding_counter::Counter;
use crate::bucket::Bucket;
use crate::decision::Hold;
use crate::quota::Quota;
use crate::time::Timestamp;

/// What is remembered of one key under one quota.
// Exhaustive on purpose: a store must be able to keep each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing: never used, or so long ago that it makes no difference.
    #[default]
    Fresh,
    /// `token_bucket`, `gcra` and `leaky_bucket`.
    Bucket(Bucket),
    /// `fixed_window`.
    Window(Window),
    /// `sliding_window_counter`.
    Counter(Counter),
    /// `sliding_window_log` and `concurrency`.
    Log(Log),
}

/// What a decision does to the state.
// Exhaustive on purpose: a store must be able to apply each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: denied, or a peek.
    None,
    /// The state becomes this.
    Replace(State),
    /// A log gains this entry.
    Record {
        /// The admitted request.
        entry: Entry,
        /// Entries taken at or before this moment no longer count.
        expired: Option<Timestamp>,
    },
    /// The clock ran back by more than a window: a log's entries from the future count from this moment.
    Rebase(Timestamp),
}

impl State {
    /// Applies the change of a decision.
    #[inline]
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::None => {}
            Change::Replace(state) => *self = state,
            Change::Record { entry, expired } => self.log().record(entry, expired),
            Change::Rebase(now) => self.log().rebase(now),
        }
    }

    /// Releases the slot of `hold`; false when it is no longer there (released before, or expired).
    pub fn release(&mut self, hold: Hold) -> bool {
        match self {
            State::Log(log) => log.release(hold),
            _ => false,
        }
    }

    /// Holds the slot of `hold` for another whole period from `now` on, and returns its new name; `None` when it is
    /// no longer there (released before, or expired).
    pub fn renew(&mut self, quota: &Quota, hold: Hold, now: Timestamp) -> Option<Hold> {
        match self {
            State::Log(log) => log.renew(hold, now, quota.period()),
            _ => None,
        }
    }

    /// When this state equals one that was never used.
    pub fn until(&self, quota: &Quota) -> Timestamp {
        match self {
            State::Fresh => Timestamp::default(),
            State::Bucket(bucket) => bucket.until(),
            State::Window(window) => quota.window_end(window.start),
            State::Counter(counter) => counter.until(quota.period()),
            State::Log(log) => log.last().map_or(Timestamp::default(), |last| last + quota.period()),
        }
    }

    fn log(&mut self) -> &mut Log {
        if !matches!(self, State::Log(_)) {
            *self = State::Log(Log::default());
        }
        match self {
            State::Log(log) => log,
            _ => unreachable!("just made a log"),
        }
    }
}
