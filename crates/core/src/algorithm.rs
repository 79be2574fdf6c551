//! What each algorithm decides, as a pure function of quota, cost, state and now.
//!
//! [`decide`] is the single definition: every store and every Lua script must give the same answer. Nothing here
//! reads a clock or writes anything. A decision comes with the [`Change`] to the state, which a store applies once
//! every rule has agreed.

mod bucket;
mod fixed_window;
mod jump;
mod lease;
mod log;
mod receipt;
mod refunds;
mod settle;
mod sliding_counter;
mod sliding_log;
mod state;

pub use fixed_window::Window;
pub use lease::Lease;
pub use log::{Entry, Log};
pub use receipt::Receipt;
pub use refunds::Refunds;
pub use settle::GivenBack;
pub use sliding_counter::Counter;
pub use state::{Change, State};

use crate::bucket::Bucket;
use crate::decision::Decision;
use crate::quota::{Algorithm, Quota};
use crate::time::Timestamp;

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
            sliding_log::decide(quota, cost, log, now)
        }
    }
}
