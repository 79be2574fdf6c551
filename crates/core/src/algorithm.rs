//! The one definition of truth: what each algorithm decides, as a pure function of quota, cost, state and now.
//!
//! Every store and every script answers as [`decide`] does. Nothing here reads a clock or writes anything: a
//! decision comes with the [`Change`] that makes it so, which a store applies once every rule has agreed.

mod bucket;
mod fixed_window;
mod lease;
mod log;
mod receipt;
mod refunds;
mod settle;
mod sliding_counter;

pub use bucket::Bucket;
pub use fixed_window::Window;
pub use lease::Lease;
pub use log::{Entry, Log};
pub use receipt::Receipt;
pub use refunds::Refunds;
pub use sliding_counter::Counter;

use crate::decision::{Decision, Hold};
use crate::quota::{Algorithm, Quota};
use crate::time::{Span, Timestamp};

/// What is remembered of one key under one quota.
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

/// Decides one charge and says what it would do to the state.
///
/// The change of a denial is [`Change::None`], except that a clock that jumped back far is repaired: state from
/// further in the future than the quota's window would lock its client out until the clock caught up.
///
/// ```
/// use tollkeeper_core::{Quota, State, Timestamp, decide};
///
/// let quota = Quota::per_second(1).burst(2).build()?;
/// let mut state = State::Fresh;
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
/// for expected in [true, true, false] {
///     let (decision, change) = decide(&quota, 1, &state, now);
///     state.apply(change);
///     assert_eq!(decision.is_allowed(), expected);
/// }
/// # Ok::<(), tollkeeper_core::QuotaError>(())
/// ```
#[inline]
pub fn decide(quota: &Quota, cost: u32, state: &State, now: Timestamp) -> (Decision, Change) {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            let bucket = if let State::Bucket(bucket) = state { Some(*bucket) } else { None };
            let (decision, next) = Bucket::decide(quota, cost, bucket, now);
            (decision, next.map_or(Change::None, |bucket| Change::Replace(State::Bucket(bucket))))
        }
        Algorithm::FixedWindow => {
            let window = if let State::Window(window) = state { Some(*window) } else { None };
            let (decision, next) = fixed_window::decide(quota, cost, window, now);
            (decision, next.map_or(Change::None, |window| Change::Replace(State::Window(window))))
        }
        Algorithm::SlidingWindowCounter => {
            let counter = if let State::Counter(counter) = state { Some(*counter) } else { None };
            let (decision, next) = sliding_counter::decide(quota, cost, counter, now);
            (decision, next.map_or(Change::None, |counter| Change::Replace(State::Counter(counter))))
        }
        Algorithm::SlidingWindowLog | Algorithm::Concurrency => {
            let log = if let State::Log(log) = state { Some(log) } else { None };
            log::decide(quota, cost, log, now)
        }
    }
}

impl State {
    /// Carries out what a decision said.
    #[inline]
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::None => {}
            Change::Replace(state) => *self = state,
            Change::Record { entry, expired } => self.log().record(entry, expired),
            Change::Rebase(now) => self.log().rebase(now),
        }
    }

    /// Gives back the slot of `hold`; false when it is no longer there (released before, or expired).
    pub fn release(&mut self, hold: Hold) -> bool {
        match self {
            State::Log(log) => log.release(hold),
            _ => false,
        }
    }

    /// Holds the slot of `hold` for another whole period from `now` on, under the name that is returned; `None` when it is no
    /// longer there (released before, or expired).
    pub fn renew(&mut self, quota: &Quota, hold: Hold, now: Timestamp) -> Option<Hold> {
        match self {
            State::Log(log) => log.renew(hold, now, quota.period()),
            _ => None,
        }
    }

    /// When this state will be as if never used.
    pub fn until(&self, quota: &Quota) -> Timestamp {
        match self {
            State::Fresh => Timestamp::default(),
            State::Bucket(bucket) => bucket.until(),
            State::Window(window) => window.start + quota.period(),
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

/// A window read by a clock that runs behind it counts as the current one: time that runs backwards mints
/// nothing. Beyond a whole window the clock must have jumped, and the state moves to the present instead, so that
/// nobody is locked out until the clock catches up.
fn jumped_back(start: Timestamp, now: Timestamp, window: Span) -> bool {
    start.since(now) >= window
}
