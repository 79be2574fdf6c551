//! Leases: tokens taken from a state ahead of use, to be spent without asking the store again.
//!
//! Leased tokens are charged when they are taken, so the total never exceeds the limit, however many are spent or
//! lost. No interval may exceed it either: a bucket that refills while leased tokens lie unused would hold a full
//! burst on top of them. So a leased token expires when the bucket has refilled what it took.
//!
//! Why that suffices: a charge of n tokens moves the moment at which the bucket is full by the time of n tokens. A
//! lease thus owns a stretch of time. No two leases own the same stretch, and the bucket still owes only what lies
//! ahead of now. If a lease may spend at most as many tokens as its stretch still holds ahead of now, all leases
//! together hold at most what the bucket owes, so bucket and leases together never hold more than the burst.
//!
//! Returning tokens shortens the stretch at its end. That is only right if no other stretch follows, that is, if the
//! bucket is full at exactly the moment the lease left it at. Otherwise the tokens stay out until they expire.
//!
//! In a window everything counts until the window ends, so leased tokens expire with it and can always be returned.

use super::receipt::Receipt;
use super::state::{Change, State};
use crate::bucket::Bucket;
use crate::pace::{Exact, Pace};
use crate::quota::{Algorithm, Quota};
use crate::time::Timestamp;

/// Tokens that were taken from a state and not yet spent.
///
/// ```
/// use tollkeeper_core::{Lease, Quota, Span, State, Timestamp, decide};
///
/// let quota = Quota::per_second(10).burst(50).build()?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
/// let mut state = State::Fresh;
/// let (_, change) = decide(&quota, 20, &state, now);
/// let mut lease = Lease::of(&quota, 20, &change).expect("a bucket can be leased from");
/// state.apply(change);
///
/// assert!(lease.spend(&quota, 1, now));
/// assert_eq!(lease.left(&quota, now), 19);
/// // A second later the bucket has refilled ten tokens, so ten of the leased ones have expired.
/// assert_eq!(lease.left(&quota, now + Span::SECOND), 10);
/// # Ok::<(), tollkeeper_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    tokens: u32,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// They expire one by one, the last when this bucket is full.
    With(Bucket),
    /// They all expire with the window that starts here.
    Window(Timestamp),
}

impl Lease {
    /// Whether this algorithm allows leases. A log has to know when each token was spent, a queue when each is due,
    /// and a slot is held by one request.
    pub const fn is_possible(algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => true,
            Algorithm::SlidingWindowLog | Algorithm::LeakyBucket | Algorithm::Concurrency => false,
        }
    }

    /// The lease of the `tokens` that an allowed charge with this change took.
    pub fn of(quota: &Quota, tokens: u32, change: &Change) -> Option<Lease> {
        if !Lease::is_possible(quota.algorithm()) {
            return None;
        }
        let ends = match change {
            Change::Replace(State::Bucket(bucket)) => Ends::With(*bucket),
            Change::Replace(State::Window(window)) => Ends::Window(window.start),
            Change::Replace(State::Counter(counter)) => Ends::Window(counter.start),
            _ => return None,
        };
        Some(Lease { tokens, ends })
    }

    /// How many tokens can still be spent. `now` must not be behind the clock by which they were taken.
    pub fn left(&self, quota: &Quota, now: Timestamp) -> u32 {
        match self.ends {
            Ends::With(bucket) if bucket.full_at < now => 0,
            Ends::With(bucket) => {
                let owed = bucket.debt(quota.pace(), now);
                if owed >= quota.pace().full() { self.tokens } else { quota.pace().tokens_in(owed).min(self.tokens) }
            }
            Ends::Window(start) => {
                if now < quota.window_end(start) {
                    self.tokens
                } else {
                    0
                }
            }
        }
    }

    /// How many tokens have not been spent, including those that have expired since it was last split.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Spends `cost` tokens if that many are left.
    pub fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> bool {
        let left = self.left(quota, now);
        if cost <= left {
            self.tokens = left - cost;
        }
        cost <= left
    }

    /// Splits up to `most` tokens off as a lease of their own, which expires as this one does.
    pub fn split(&mut self, quota: &Quota, most: u32, now: Timestamp) -> Lease {
        let left = self.left(quota, now);
        let tokens = most.min(left);
        self.tokens = left - tokens;
        Lease { tokens, ends: self.ends }
    }

    /// Merges a lease back that was split off this one. Tokens that expired in between stay expired.
    pub fn join(&mut self, other: Lease) -> bool {
        let is_own = self.ends == other.ends;
        if is_own {
            self.tokens = self.tokens.saturating_add(other.tokens);
        }
        is_own
    }

    /// The receipt for returning the rest to the store; `None` when nothing is left. Do not use the lease after that.
    pub fn receipt(&self, quota: &Quota, now: Timestamp) -> Option<Receipt> {
        let cost = Some(self.left(quota, now)).filter(|left| *left > 0)?;
        Some(match self.ends {
            Ends::With(bucket) => Receipt { cost, at: bucket.full_at, nth: bucket.part, is_lease: true, after: None },
            Ends::Window(start) => Receipt { cost, at: start, nth: 0, is_lease: true, after: None },
        })
    }
}

impl Bucket {
    /// The bucket without the tokens of a lease; `None` if it has been charged since, or the rule has changed.
    pub(super) fn without(&self, pace: &Pace, lease: Receipt, now: Timestamp) -> Option<Bucket> {
        let (owed, taken) = (self.debt(pace, now), pace.lasting(lease.cost));
        if self.is_foreign(pace) || self.full_at != lease.at || owed.part != u64::from(lease.nth) || self.full_at < now
        {
            return None;
        }
        let left = if taken < owed { pace.sub(owed, taken) } else { Exact::ZERO };
        Some(Bucket::after(now, left, pace))
    }
}
