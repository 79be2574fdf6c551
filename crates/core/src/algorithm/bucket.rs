//! `token_bucket`, `gcra` and `leaky_bucket`: all three are GCRA. The state is the moment at which the bucket is full
//! again (for the leaky bucket: the queue is empty). The time from now until then is the debt: what is missing from
//! the bucket.

use crate::bucket::Bucket;
use crate::decision::{Decision, Outcome};
use crate::pace::{Exact, Pace};
use crate::quota::{Algorithm, Quota};
use crate::time::{Span, Timestamp};

impl Bucket {
    /// [`decide`](crate::decide) for quotas with a burst, for stores that know that the state is a bucket. Inlined at
    /// every use: moving a decision through memory takes longer than making it.
    #[inline(always)]
    pub fn decide(quota: &Quota, cost: u32, state: Option<Bucket>, now: Timestamp) -> (Decision, Option<Bucket>) {
        if let Some(bucket) = state
            && bucket.is_foreign(quota.pace())
        {
            return decide_foreign(quota, cost, bucket, now);
        }
        // Most rates are whole microseconds per token; the same arithmetic is shorter when the compiler knows that.
        match quota.pace().in_whole_microseconds() {
            Some(pace) => decide(quota, &pace, cost, state, now),
            None => decide(quota, quota.pace(), cost, state, now),
        }
    }

    /// The same for a bucket that this quota wrote; `None` for any other. Stores that decide on a bucket before they lock it use
    /// this: all else takes a way of its own there.
    #[inline(always)]
    pub fn decide_own(quota: &Quota, cost: u32, bucket: Bucket, now: Timestamp) -> Option<(Decision, Option<Bucket>)> {
        let pace = quota.pace();
        if bucket.is_foreign(pace) {
            return None;
        }
        Some(match pace.in_whole_microseconds() {
            Some(whole) => decide(quota, &whole, cost, Some(bucket), now),
            None => decide(quota, pace, cost, Some(bucket), now),
        })
    }

    /// The bucket converted to the pace of this quota; `None` if the pace that wrote it is unknown.
    pub(super) fn known(&self, quota: &Quota) -> Option<Bucket> {
        if self.is_foreign(quota.pace()) { quota.formers().carry(*self, quota.pace()) } else { Some(*self) }
    }
}

/// Decides on a bucket that another pace wrote. A denial also writes the converted bucket, so that the store keeps it
/// for as long as it now matters.
#[cold]
#[inline(never)]
fn decide_foreign(quota: &Quota, cost: u32, bucket: Bucket, now: Timestamp) -> (Decision, Option<Bucket>) {
    let pace = quota.pace();
    let bucket = bucket.known(quota).unwrap_or_else(|| {
        // The pace is unknown, so the debt cannot be converted to tokens. Keep it as time, capped at one refill: no
        // free burst, and no wait longer than a refill.
        let debt = if bucket.full_at >= now { bucket.debt(pace, now) } else { Exact::ZERO };
        Bucket::after(now, debt.min(pace.full()), pace)
    });
    let (decision, next) = decide(quota, pace, cost, Some(bucket), now);
    let is_denied = !decision.is_allowed() && cost <= quota.limit();
    (decision, next.or(is_denied.then_some(bucket)))
}

#[inline(always)]
fn decide(quota: &Quota, pace: &Pace, cost: u32, state: Option<Bucket>, now: Timestamp) -> (Decision, Option<Bucket>) {
    let debt = match state {
        Some(bucket) if bucket.full_at >= now => bucket.debt(pace, now),
        _ => Exact::ZERO,
    };
    if cost > quota.limit() {
        return (answer(quota, pace, Outcome::NEVER, debt), None);
    }
    let asked = pace.lasting(cost);
    let charged = pace.add(debt, asked);
    if cost == 0 || charged <= pace.full() {
        let delay = match quota.algorithm() {
            Algorithm::LeakyBucket => debt.ceil(),
            _ => Span::ZERO,
        };
        let decision = answer(quota, pace, Outcome::Allowed { delay }, charged);
        return (decision, (cost > 0).then(|| Bucket::after(now, charged, pace)));
    }
    let full_ahead = pace.add(pace.full(), pace.full());
    if debt >= full_ahead {
        // A bucket never owes more than it holds, so the clock must have jumped back by a whole refill or more. Treat
        // the bucket as empty now, so that nobody is locked out until the clock catches up.
        let (debt, wait) = (pace.full(), asked);
        return (answer(quota, pace, Outcome::denied_for(wait.ceil()), debt), Some(Bucket::after(now, debt, pace)));
    }
    let wait = pace.sub(charged, pace.full());
    (answer(quota, pace, Outcome::denied_for(wait.ceil()), debt), None)
}

#[inline(always)]
fn answer(quota: &Quota, pace: &Pace, outcome: Outcome, debt: Exact) -> Decision {
    let remaining = if debt < pace.full() { pace.tokens_in(pace.sub(pace.full(), debt)) } else { 0 };
    Decision { outcome, limit: quota.limit(), remaining, reset_after: debt.ceil(), hold: None }
}
