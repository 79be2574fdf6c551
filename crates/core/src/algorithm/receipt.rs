//! Refunds: giving back what an admitted charge took.
//!
//! Rules of one request may live on different nodes. Each is charged, and if another one denies, the charge is
//! refunded. A refund never creates tokens: the key never has more left than if the charge had not been made. Beyond
//! that,
//! - windows, counters and logs have exactly that much left, as long as the charged window still counts;
//! - a bucket has exactly that much left if it owed nothing else when it was charged, or if no time has passed.
//!   Otherwise it is short by at most what it refilled between charge and refund: all of that may have gone into this
//!   charge, and the state cannot tell.
//!
//! This holds under one quota and a clock that does not jump. After a jump, or when the state was reset or replaced,
//! a refund gives back at most the cost, and nothing if the charge can no longer be found.

use super::fixed_window::Window;
use super::sliding_counter::Counter;
use super::state::{Change, State};
use crate::bucket::Bucket;
use crate::decision::{Decision, Hold};
use crate::pace::Exact;
use crate::quota::{Algorithm, Quota};
use crate::time::Timestamp;

/// What a refund has to know about the charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What it cost.
    pub cost: u32,
    /// Where it was booked: when it was charged, or the start of the window in which it counts. For the lease of a
    /// bucket: when the bucket was full again after it.
    pub at: Timestamp,
    /// Distinguishes log entries of one microsecond. For a bucket: how many tokens were used after it, so that its charges of one
    /// microsecond have an order; 0 if that is not known. For the lease of a bucket: the fraction of a microsecond.
    pub nth: u32,
    /// Refunded only if the bucket has not been charged since: see [`Lease`](super::Lease).
    pub is_lease: bool,
    /// The bucket as the charge left it: see [`State::settle`].
    pub after: Option<Bucket>,
}

impl Receipt {
    /// The receipt of a charge that was decided at `now`; `None` when it takes nothing: denied, or a peek.
    ///
    /// ```
    /// use tollkeeper_core::{Quota, Receipt, State, Timestamp, decide};
    ///
    /// let quota = Quota::per_second(1).burst(2).build()?;
    /// let now = Timestamp::from_micros(1_700_000_000_000_000);
    /// let mut state = State::Fresh;
    /// let (decision, change) = decide(&quota, 2, &state, now);
    /// let receipt = Receipt::of(2, &decision, &change, now).expect("it passes");
    /// state.apply(change);
    /// assert!(state.refund(&quota, receipt, now));
    /// assert_eq!(state, State::Fresh);
    /// # Ok::<(), tollkeeper_core::QuotaError>(())
    /// ```
    pub fn of(cost: u32, decision: &Decision, change: &Change, now: Timestamp) -> Option<Receipt> {
        if cost == 0 || !decision.is_allowed() {
            return None;
        }
        let (at, nth) = match change {
            Change::Replace(State::Window(window)) => (window.start, 0),
            Change::Replace(State::Counter(counter)) => (counter.start, 0),
            Change::Record { entry, .. } => (entry.hold.at, entry.hold.nth),
            Change::Replace(State::Bucket(_)) => (now, decision.limit - decision.remaining),
            _ => (now, 0),
        };
        let after = if let Change::Replace(State::Bucket(bucket)) = change { Some(*bucket) } else { None };
        Some(Receipt { cost, at, nth, is_lease: false, after })
    }
}

impl State {
    /// Gives back what the charge of `receipt` took; false when nothing of it is left. Call it at most once per
    /// receipt.
    pub fn refund(&mut self, quota: &Quota, receipt: Receipt, now: Timestamp) -> bool {
        let Receipt { cost, at, nth, is_lease, .. } = receipt;
        let algorithm = quota.algorithm();
        let refunded = match self {
            State::Log(log) if algorithm.keeps_log() => {
                let found = log.reduce(Hold { at, nth }, cost);
                if log.last().is_none() {
                    *self = State::Fresh;
                }
                return found;
            }
            State::Bucket(bucket) if algorithm.has_burst() && is_lease => {
                match bucket.without(quota.pace(), Receipt { cost: cost.min(quota.limit()), ..receipt }, now) {
                    Some(bucket) => State::Bucket(bucket),
                    None => return false,
                }
            }
            State::Bucket(bucket) if algorithm.has_burst() => {
                match bucket.known(quota).and_then(|bucket| refill(quota, bucket, receipt, now)) {
                    Some(bucket) => State::Bucket(bucket),
                    None => return false,
                }
            }
            State::Window(window) if algorithm == Algorithm::FixedWindow && window.start == at => {
                State::Window(Window { admitted: window.admitted.saturating_sub(cost), ..*window })
            }
            State::Counter(counter) if algorithm == Algorithm::SlidingWindowCounter => {
                let Counter { start, current, previous } = *counter;
                if start == at {
                    State::Counter(Counter { current: current.saturating_sub(cost), ..*counter })
                } else if start == at + quota.period() {
                    State::Counter(Counter { previous: previous.saturating_sub(cost), ..*counter })
                } else {
                    return false;
                }
            }
            _ => return false,
        };
        let is_empty = matches!(refunded, State::Window(Window { admitted: 0, .. }));
        *self = if is_empty || refunded.until(quota) <= now { State::Fresh } else { refunded };
        true
    }
}

impl State {
    /// Receipts for up to `cost` of the latest charges, for callers that refund an amount without knowing which
    /// charges it came from. Only what counts now can be refunded, so the key never has more left than its limit.
    ///
    /// Empty for `concurrency`: a slot is released by its hold.
    pub fn latest(&self, quota: &Quota, cost: u32, now: Timestamp) -> Vec<Receipt> {
        /// The most log entries per call, to bound the work.
        const MOST: usize = 1_000;
        let mut left = cost;
        let mut receipt = |at: Timestamp, nth: u32, most: u32| {
            let cost = left.min(most);
            left -= cost;
            (cost > 0).then_some(Receipt { cost, at, nth, is_lease: false, after: None })
        };
        match (self, quota.algorithm()) {
            (State::Bucket(_), algorithm) if algorithm.has_burst() => receipt(now, 0, cost).into_iter().collect(),
            (State::Window(window), Algorithm::FixedWindow) => {
                receipt(window.start, 0, window.admitted).into_iter().collect()
            }
            (State::Counter(counter), Algorithm::SlidingWindowCounter) => {
                let before = counter.start.as_micros().saturating_sub(quota.period().as_micros());
                let before = Timestamp::from_micros(before);
                let receipts = [receipt(counter.start, 0, counter.current), receipt(before, 0, counter.previous)];
                receipts.into_iter().flatten().collect()
            }
            (State::Log(log), Algorithm::SlidingWindowLog) => {
                let newest: Vec<_> = log.entries().copied().collect();
                let newest = newest.into_iter().rev().take(MOST);
                newest.filter_map(|entry| receipt(entry.hold.at, entry.hold.nth, entry.cost)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The bucket with what is certainly left of the charge refunded; `None` when nothing is.
fn refill(quota: &Quota, bucket: Bucket, receipt: Receipt, now: Timestamp) -> Option<Bucket> {
    if bucket.full_at < now {
        return None;
    }
    let pace = quota.pace();
    let taken = pace.lasting(receipt.cost.min(quota.limit()));
    let refilled = Exact { whole: now.since(receipt.at).as_micros(), part: 0 };
    if taken <= refilled {
        return None;
    }
    let (credit, debt) = (pace.sub(taken, refilled), bucket.debt(pace, now));
    let left = if debt <= credit { Exact::ZERO } else { pace.sub(debt, credit) };
    Some(Bucket::after(now, left, pace))
}
