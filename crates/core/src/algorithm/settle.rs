//! Settling an estimate: a request is charged an estimated cost, and once the actual cost is known, the rest is
//! refunded or the difference is charged.
//!
//! A refund is never more than the charge still costs the key; [`State::settle`] says why. Usage beyond the estimate
//! has already happened, so it is charged in any case: the key may then owe up to twice its limit, and waits until
//! that is paid off.

use super::fixed_window::{self, Window};
use super::receipt::Receipt;
use super::sliding_counter::{self, Counter};
use super::state::State;
use crate::bucket::Bucket;
use crate::decision::Hold;
use crate::pace::{Exact, Pace};
use crate::quota::{Algorithm, Quota};
use crate::time::Timestamp;

/// What settling a charge gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// How much of the charge was refunded. A token that the bucket has refilled in part counts as one.
    pub refunded: u32,
    /// What counts as refunded when earlier charges are settled: all that was not used. A bucket only knows when it will be full
    /// again, so this must not be too low.
    pub counted: u32,
}

impl GivenBack {
    fn all(amount: u32) -> GivenBack {
        GivenBack { refunded: amount, counted: amount }
    }
}

impl State {
    /// What a reset counts as among refunds: more than all that was charged before.
    pub const RESET: u64 = 1 << 40;

    /// Corrects the charge of `receipt` to its actual cost. Call it at most once per receipt. Returns how much of the
    /// charge was refunded.
    ///
    /// `refunded` is what the key got back, since this charge, of charges made before it: what this function returned
    /// for them as `counted`, and the costs of other refunds ([`Refunds`](super::Refunds) keeps that sum). It may be too
    /// high, never too low.
    ///
    /// Windows, counters and logs know what was charged when, so the refund is exact. A bucket only knows when it
    /// will be full again. Without the charge the bucket would owe less: at first by the cost, and never by more than
    /// the least that it has owed since, because a full bucket gains nothing from more time. It has owed at least
    /// what it owed after the charge, minus the time since and the refunds of earlier charges (a refund of a later
    /// charge leaves at least what was there before that charge). That much of the cost is refunded, and no more. A
    /// bucket in use therefore loses nothing until as much time has passed as it owed.
    ///
    /// A `concurrency` slot is released, whatever the cost.
    pub fn settle(&mut self, quota: &Quota, receipt: Receipt, cost: u32, refunded: u64, now: Timestamp) -> GivenBack {
        if quota.algorithm() == Algorithm::Concurrency {
            let hold = Hold { at: receipt.at, nth: receipt.nth };
            return if self.release(hold) { GivenBack::all(receipt.cost) } else { GivenBack::default() };
        }
        let Some(unused) = receipt.cost.checked_sub(cost) else {
            self.overdraw(quota, cost - receipt.cost, now);
            return GivenBack::default();
        };
        if refunded >= State::RESET {
            return GivenBack::default();
        }
        let credited = match (&*self, receipt.after) {
            (State::Bucket(bucket), Some(after)) if quota.algorithm().has_burst() => {
                let bucket = bucket.known(quota);
                Some(bucket.and_then(|bucket| bucket.credited(quota, after, unused, refunded, now)))
            }
            _ => None,
        };
        match credited {
            Some(Some((bucket, tokens))) => {
                *self = if bucket.until() <= now { State::Fresh } else { State::Bucket(bucket) };
                GivenBack { refunded: tokens, counted: unused }
            }
            None if unused > 0 && self.refund(quota, Receipt { cost: unused, ..receipt }, now) => {
                GivenBack::all(unused)
            }
            _ => GivenBack::default(),
        }
    }

    /// Charges what was already used, whether it fits or not.
    fn overdraw(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let cost = cost.min(quota.limit());
        let most = quota.limit().saturating_mul(2);
        let before = std::mem::take(self);
        *self = match (quota.algorithm(), before) {
            (_, before) if cost == 0 => before,
            (Algorithm::FixedWindow, before) => {
                let window = if let State::Window(window) = before { Some(window) } else { None };
                let (window, _) = fixed_window::as_of(quota, window, now);
                State::Window(Window { admitted: window.admitted.saturating_add(cost).min(most), ..window })
            }
            (Algorithm::SlidingWindowCounter, before) => {
                let counter = if let State::Counter(counter) = before { Some(counter) } else { None };
                let (counter, _) = sliding_counter::as_of(quota, counter, now);
                let current = counter.current.saturating_add(cost).min(quota.limit());
                State::Counter(Counter { current, ..counter })
            }
            (Algorithm::SlidingWindowLog | Algorithm::Concurrency, before) => {
                let mut log = if let State::Log(log) = before { log } else { Default::default() };
                log.overdraw(quota, cost, now);
                State::Log(log)
            }
            (Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket, before) => {
                let bucket = if let State::Bucket(bucket) = before { Some(bucket) } else { None };
                State::Bucket(Bucket::overdrawn(bucket, quota, cost, now))
            }
        };
    }
}

impl Bucket {
    /// The bucket with what is certainly left of an unused charge refunded, and how many tokens that is; `None` when nothing
    /// is. `after` is the bucket as that charge left it.
    fn credited(
        self,
        quota: &Quota,
        after: Bucket,
        unused: u32,
        refunded: u64,
        now: Timestamp,
    ) -> Option<(Bucket, u32)> {
        let pace = quota.pace();
        // Under another pace, what it owed then says nothing about now.
        if after.tag != pace.tag() {
            return None;
        }
        if self.full_at < now || after.full_at < now || refunded >= u64::from(quota.limit()) || unused == 0 {
            return None;
        }
        let (debt, owed, refunded) = (self.debt(pace, now), after.debt(pace, now), pace.lasting(refunded as u32));
        if owed <= refunded {
            return None;
        }
        let most = unused.min(quota.limit());
        let credit = pace.sub(owed, refunded).min(pace.lasting(most)).min(debt);
        Some((Bucket::after(now, pace.sub(debt, credit), pace), pace.tokens_begun(credit).min(most)))
    }

    /// Charges `cost` more, up to the limit. The debt stays below two full buckets: more would look like a clock
    /// jump.
    fn overdrawn(bucket: Option<Bucket>, quota: &Quota, cost: u32, now: Timestamp) -> Bucket {
        let pace: &Pace = quota.pace();
        let full_ahead = pace.add(pace.full(), pace.full());
        let debt = match bucket.map(|bucket| bucket.known(quota).ok_or(bucket)) {
            Some(Ok(bucket)) if bucket.full_at >= now => bucket.debt(pace, now),
            Some(Err(unknown)) if unknown.full_at >= now => unknown.debt(pace, now).min(pace.full()),
            _ => Exact::ZERO,
        };
        let debt = if debt >= full_ahead { pace.full() } else { debt };
        let debt = pace.add(debt, pace.lasting(cost));
        if debt < full_ahead {
            return Bucket::after(now, debt, pace);
        }
        let most = full_ahead.whole.checked_sub(1).map_or(Exact::ZERO, |whole| Exact { whole, ..full_ahead });
        Bucket::after(now, most.max(pace.full()), pace)
    }
}
