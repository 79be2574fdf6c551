//! Tokens leased from the store, for rules with `lease`: most requests are then decided without a call.
//!
//! [`Lease`] says why no interval ever exceeds the limit. This module decides how many tokens to lease and when to
//! return them: as many as were spent in the last tenth of a second, so that a hot key is leased for about ten times a
//! second, and at least as many as are spent while the next ones are being fetched; enough to last that long (tokens of
//! a nearly full bucket expire as fast as it refills); never more than a quarter of what is left in the store, so that
//! the last tokens are shared; more when half are gone, which is before they are needed; and back when they have been
//! idle for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tollkeeper_core::{BucketRef, Charge, Decision, Lease, LeaseSize, Outcome, Quota, Receipt, Span, Timestamp};

use super::callers::Answered;
use super::instant::Instant;
use super::overload::Overload;
use crate::store::error::StoreError;
use crate::store::memory::{Id, Secret};

/// What this process has leased.
pub(super) struct Leases {
    secret: Secret,
    state: RwLock<Outstanding>,
}

#[derive(Default)]
struct Outstanding {
    holdings: HashMap<Id, Arc<Holding>>,
    /// A task returns idle leases.
    is_swept: bool,
}

/// The leases of one bucket.
pub(super) struct Holding {
    held: Mutex<Held>,
    /// Signals waiting requests that more was leased, or that there is nothing to lease.
    taken: Notify,
}

struct Held {
    /// The bucket, at a cost of one token.
    token: Charge,
    /// Oldest first.
    leases: VecDeque<Taken>,
    /// While the next tokens are being fetched,
    demand: Demand,
    /// and over a longer time.
    lasting: Demand,
    /// More is being leased.
    taking: Option<Taking>,
    /// Why the last attempt to lease more failed: requests that waited for it do not wait again.
    failed: Option<StoreError>,
    /// Tokens on their way back to the store.
    returning: u32,
    used_at: Instant,
    /// When returning was last tried.
    tried_at: Instant,
    /// The store's last answer.
    seen: Option<(Decision, Instant)>,
}

/// Tokens being leased.
#[derive(Clone, Copy)]
struct Taking {
    tokens: u32,
    /// How many of them the waiting requests need.
    promised: u32,
}

#[derive(Clone, Copy)]
struct Taken {
    lease: Lease,
    /// When it was leased by the server's clock,
    at: Timestamp,
    /// which was not before this moment.
    asked_at: Instant,
}

/// A request that was served from leases.
pub(super) struct Spent {
    pub(super) decision: Decision,
    cost: u32,
    holding: Arc<Holding>,
    /// The tokens, as long as they may be put back.
    tokens: Vec<Taken>,
}

/// Leases being returned. Until this is dropped their tokens count as leased.
pub(super) struct Returning {
    holding: Arc<Holding>,
    token: Charge,
    /// The newest first: the others are below it and cannot be returned before.
    leases: Vec<(Taken, Receipt)>,
}

impl Drop for Returning {
    fn drop(&mut self) {
        let mut held = self.holding.held();
        held.returning = held.returning.saturating_sub(tokens_of(&self.leases));
    }
}

impl Returning {
    /// The bucket at one token, and the receipt of each lease.
    pub(super) fn receipts(&self) -> Vec<(Charge, Receipt)> {
        self.leases.iter().map(|(_, receipt)| (self.token.clone(), *receipt)).collect()
    }

    /// Keeps what could not be returned, because others have charged the bucket since: it can still be spent until it
    /// expires.
    pub(super) fn keep(self, is_back: &[bool]) {
        let mut held = self.holding.held();
        for ((taken, _), is_back) in self.leases.iter().zip(is_back) {
            if !is_back {
                held.leases.push_front(*taken);
            }
        }
    }
}

/// How many tokens a holding should lease now.
pub(super) struct Wanted {
    pub(super) holding: Arc<Holding>,
    pub(super) token: Charge,
    pub(super) tokens: u32,
}

impl Leases {
    /// The most buckets with leases; the others ask the store.
    const MOST: usize = 4_096;
    /// How often idle leases are looked for.
    pub(super) const SWEEP: Duration = Duration::from_millis(50);
    /// Leases unused for this long are returned.
    const IDLE: Duration = Duration::from_millis(100);
    /// If returning failed, try again after this long.
    const TRY_AGAIN: Duration = Duration::from_millis(500);
    /// A bucket not used for this long is forgotten.
    const FORGOTTEN: Duration = Duration::from_secs(1);
    /// At most one of this many parts of what is left in the store is leased.
    const SHARE: u32 = 4;
    /// A lease covers the demand of this time, as far as it was seen. A renewal costs as much as about a hundred decisions
    /// from leases, so a key with a thousand requests in this time pays a tenth more for it.
    const LASTING: Duration = Duration::from_millis(100);
    /// Of a nearly full bucket at most this many tokens are leased for each one that is spent; the others expire.
    const SPARE: u32 = 8;
    /// Tokens that would expire sooner after their arrival are not worth leasing.
    const SHORTEST: Duration = Duration::from_millis(2);

    pub(super) fn new() -> Leases {
        Leases { secret: Secret::random(), state: RwLock::default() }
    }

    /// The holding of a bucket, if there is one.
    pub(super) fn known(&self, charge: &Charge) -> Option<Arc<Holding>> {
        if charge.lease().is_none() || charge.cost == 0 {
            return None;
        }
        let id = self.secret.bucket(charge.rule.name(), &charge.key);
        self.state.read().unwrap_or_else(PoisonError::into_inner).holdings.get(&id).cloned()
    }

    /// The holding of a bucket, and whether the task for idle leases has to be started. `None` when the charge is not
    /// leased.
    pub(super) fn holding(&self, charge: &Charge, now: Instant) -> Option<(Arc<Holding>, bool)> {
        if charge.lease().is_none() || charge.cost == 0 {
            return None;
        }
        if let Some(holding) = self.known(charge) {
            return Some((holding, false));
        }
        let id = self.secret.bucket(charge.rule.name(), &charge.key);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.holdings.len() >= Leases::MOST {
            return None;
        }
        let holding = state.holdings.entry(id).or_insert_with(|| Arc::new(Holding::new(charge, now))).clone();
        let start = !state.is_swept;
        state.is_swept = true;
        Some((holding, start))
    }

    /// Forgets the leases of a bucket that was reset.
    pub(super) fn forget(&self, bucket: BucketRef<'_>) {
        let id = self.secret.bucket(bucket.rule, bucket.key);
        self.state.write().unwrap_or_else(PoisonError::into_inner).holdings.remove(&id);
    }

    /// Leased tokens that are neither spent nor expired nor back in the store.
    pub(super) fn tokens(&self, now: Instant) -> u64 {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let tokens = |held: MutexGuard<'_, Held>| u64::from(held.left(now)) + u64::from(held.returning);
        state.holdings.values().map(|holding| tokens(holding.held())).sum()
    }

    /// What should be returned; `None` when there are no leases left.
    pub(super) fn sweep(&self, now: Instant, all: bool) -> Option<Vec<Returning>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut back = Vec::new();
        state.holdings.retain(|_, holding| {
            let mut held = holding.held();
            let since = |then| now.saturating_duration_since(then);
            if all || (since(held.used_at) > Leases::IDLE && since(held.tried_at) > Leases::TRY_AGAIN) {
                held.tried_at = now;
                let leases = held.take_out(now);
                if !leases.is_empty() {
                    held.returning += tokens_of(&leases);
                    back.push(Returning { holding: holding.clone(), token: held.token.clone(), leases });
                    return true;
                }
            }
            // Whoever else has it may put tokens back: a request, or leases that are just being returned.
            let is_shared = Arc::strong_count(holding) > 1;
            is_shared || held.taking.is_some() || held.left(now) > 0 || since(held.used_at) < Leases::FORGOTTEN
        });
        state.is_swept = !state.holdings.is_empty();
        (state.is_swept || !back.is_empty()).then_some(back)
    }
}

impl Holding {
    fn new(charge: &Charge, now: Instant) -> Holding {
        let held = Mutex::new(Held {
            token: charge.clone().with_cost(1),
            leases: VecDeque::new(),
            demand: Demand::new(now, Demand::SHORTEST),
            lasting: Demand::new(now, Leases::LASTING),
            taking: None,
            failed: None,
            returning: 0,
            used_at: now,
            tried_at: now - Leases::TRY_AGAIN,
            seen: None,
        });
        Holding { held, taken: Notify::new() }
    }

    /// Serves a request from what is held, or from what is just being leased if that is enough for all waiting
    /// requests. Otherwise the store has to be asked, which takes no longer. `take` is called when more is wanted.
    pub(super) async fn serve(
        self: &Arc<Self>,
        charge: &Charge,
        now: Instant,
        round_trip: Duration,
        overload: &Overload,
        take: impl Fn(Wanted),
    ) -> Result<Option<Spent>, StoreError> {
        // From here on no signal is missed.
        let sign = self.taken.notified();
        let (spent, wanted, waits) = self.spend(charge, now, round_trip);
        wanted.map(&take);
        if !waits {
            return Ok(spent);
        }
        let _place = overload.enter()?;
        sign.await;
        let mut held = self.held();
        match &held.failed {
            Some(error) => Err(error.clone()),
            None => Ok(held.serve(self, charge, Instant::now())),
        }
    }

    /// Serves a request from what is held, if that is enough. `take` is called when more is wanted.
    pub(super) fn serve_held(
        self: &Arc<Self>,
        charge: &Charge,
        now: Instant,
        round_trip: Duration,
        take: impl FnOnce(Wanted),
    ) -> Option<Spent> {
        let mut held = self.held();
        if !held.token.has_terms_of(charge) {
            return None;
        }
        let spent = held.serve(self, charge, now)?;
        held.count(charge.cost, now, round_trip);
        let wanted = held.more(self, now, round_trip);
        drop(held);
        wanted.map(take);
        Some(spent)
    }

    /// Spends if enough is left, and says how much more should be leased and whether to wait for what is being
    /// leased.
    fn spend(
        self: &Arc<Self>,
        charge: &Charge,
        now: Instant,
        round_trip: Duration,
    ) -> (Option<Spent>, Option<Wanted>, bool) {
        let mut held = self.held();
        if held.token.quota() != charge.quota() {
            // The rule has changed: tokens of the old one are left to expire.
            held.leases.clear();
        }
        if !held.token.has_terms_of(charge) {
            held.token = charge.clone().with_cost(1);
        }
        held.count(charge.cost, now, round_trip);
        let spent = held.serve(self, charge, now);
        let wanted = held.more(self, now, round_trip);
        let waits = match &mut held.taking {
            Some(taking) if spent.is_none() && charge.cost <= taking.tokens.saturating_sub(taking.promised) => {
                taking.promised += charge.cost;
                true
            }
            _ => false,
        };
        (spent, wanted, waits)
    }

    /// The store's answer to a request that it decided.
    pub(super) fn learn(&self, decision: Decision, now: Instant) {
        self.held().seen = Some((decision, now));
    }

    /// The result of leasing more.
    pub(super) fn taken(&self, answered: Result<Answered, StoreError>, now: Instant) {
        let mut held = self.held();
        held.taking = None;
        held.failed = None;
        match answered {
            Ok(Answered { answer, now: at, asked_at }) => {
                held.seen = answer.decisions.first().map(|decision| (*decision, now));
                held.leases.extend(answer.lease.map(|lease| Taken { lease, at, asked_at }));
            }
            Err(error) => held.failed = Some(error),
        }
        drop(held);
        self.taken.notify_waiters();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spent {
    /// The request did not pass after all: its tokens are put back, and the decision is as if they had not been
    /// spent.
    pub(super) fn put_back(self) -> Decision {
        let mut held = self.holding.held();
        for tokens in self.tokens {
            let joined = held.leases.iter_mut().any(|taken| taken.lease.join(tokens.lease));
            // Its lease may have been used up by others in between.
            if !joined {
                held.leases.push_front(tokens);
            }
        }
        let remaining = self.decision.remaining.saturating_add(self.cost).min(self.decision.limit);
        Decision { remaining, ..self.decision }
    }
}

impl Taken {
    /// An upper bound of the server's time.
    fn now(&self, now: Instant) -> Timestamp {
        self.at + Span::from(now.saturating_duration_since(self.asked_at))
    }
}

impl Held {
    fn serve(&mut self, holding: &Arc<Holding>, charge: &Charge, now: Instant) -> Option<Spent> {
        let tokens = self.spend(charge.cost, now)?;
        Some(Spent { decision: self.decision(now), cost: charge.cost, holding: holding.clone(), tokens })
    }

    /// Spends this many tokens, the oldest first, or none.
    fn spend(&mut self, cost: u32, now: Instant) -> Option<Vec<Taken>> {
        if self.left(now) < cost {
            return None;
        }
        let quota = self.token.quota();
        let (mut tokens, mut missing) = (Vec::with_capacity(1), cost);
        while missing > 0 {
            let oldest = self.leases.front_mut()?;
            // Both parts have just been freed of what has expired.
            let lease = oldest.lease.split(quota, missing, oldest.now(now));
            missing -= lease.tokens();
            if lease.tokens() > 0 {
                tokens.push(Taken { lease, ..*oldest });
            }
            if oldest.lease.tokens() == 0 {
                self.leases.pop_front();
            }
        }
        Some(tokens)
    }

    /// Records a request.
    fn count(&mut self, cost: u32, now: Instant, round_trip: Duration) {
        self.used_at = now;
        self.demand.count(cost, now, round_trip.max(Demand::SHORTEST));
        self.lasting.count(cost, now, Leases::LASTING);
    }

    fn left(&self, now: Instant) -> u32 {
        let quota = self.token.quota();
        self.leases.iter().map(|taken| taken.lease.left(quota, taken.now(now))).sum()
    }

    /// The store's last answer, with what is left here. Others may have charged the bucket since.
    fn decision(&self, now: Instant) -> Decision {
        let limit = self.token.quota().limit();
        let (seen, age) = match &self.seen {
            Some((seen, at)) => (seen.remaining, seen.reset_after - Span::from(now.saturating_duration_since(*at))),
            None => (0, Span::ZERO),
        };
        Decision {
            outcome: Outcome::Allowed { delay: Span::ZERO },
            limit,
            remaining: seen.saturating_add(self.left(now)).min(limit),
            reset_after: age,
            hold: None,
        }
    }

    /// What to lease now, if anything: it counts as being leased from here on.
    fn more(&mut self, holding: &Arc<Holding>, now: Instant, round_trip: Duration) -> Option<Wanted> {
        let tokens = self.wanted(now, round_trip)?;
        self.taking = Some(Taking { tokens, promised: 0 });
        Some(Wanted { holding: holding.clone(), token: self.token.clone(), tokens })
    }

    /// How many tokens to lease now, if any.
    ///
    /// Requested when half are left, they arrive one round trip later: so a lease covers at least two round trips, and what
    /// is left of it has to last for three.
    fn wanted(&self, now: Instant, round_trip: Duration) -> Option<u32> {
        let (seen, _) = self.seen.filter(|_| self.taking.is_none())?;
        let quota = self.token.quota();
        let owed = quota.limit() - seen.remaining;
        let lasting = self.lasting.recent();
        let asked = self.demand.within(2 * round_trip + Demand::SHORTEST).max(lasting);
        let size = match self.token.lease()? {
            LeaseSize::Auto => {
                let meanwhile = refilled(quota, 3 * round_trip + Demand::SHORTEST);
                let later = refilled(quota, Leases::LASTING).min(lasting.saturating_mul(Leases::SPARE));
                let ending = meanwhile.max(later).saturating_sub(owed);
                if round_trip < Demand::SHORTEST { asked.max(ending) } else { asked.saturating_add(ending) }
            }
            LeaseSize::Tokens(tokens) => tokens,
        };
        let tokens = size.min(seen.remaining / Leases::SHARE);
        // A single token might as well be asked for when needed, and so might tokens that would expire at once.
        let outlives = owed.saturating_add(tokens) > refilled(quota, round_trip + Leases::SHORTEST);
        let is_worth_it = self.demand.recent() > 1 && tokens > 1 && outlives;
        (is_worth_it && self.left(now) < size / 2).then_some(tokens)
    }

    /// Takes all leases out, with their receipts.
    fn take_out(&mut self, now: Instant) -> Vec<(Taken, Receipt)> {
        let quota = self.token.quota();
        let newest_first = self.leases.drain(..).rev();
        newest_first.filter_map(|taken| Some((taken, taken.lease.receipt(quota, taken.now(now))?))).collect()
    }
}

fn tokens_of(returned: &[(Taken, Receipt)]) -> u32 {
    returned.iter().map(|(_, receipt)| receipt.cost).sum()
}

/// How many tokens a bucket refills in this time, and so how many leased ones expire. In a window none do.
fn refilled(quota: &Quota, within: Duration) -> u32 {
    if quota.refill().is_none() {
        return 0;
    }
    let refilled = u128::from(quota.count()) * within.as_micros() / u128::from(quota.period().as_micros());
    u32::try_from(refilled).unwrap_or(u32::MAX)
}

/// How many tokens were requested in this window and the one before.
struct Demand {
    since: Instant,
    current: u32,
    previous: u32,
    window: Duration,
}

impl Demand {
    /// The shortest window. With a distant server the window is a round trip: requests that wait for tokens ask again
    /// only after that.
    const SHORTEST: Duration = Duration::from_millis(10);

    fn new(now: Instant, window: Duration) -> Demand {
        Demand { since: now, current: 0, previous: 0, window }
    }

    /// `window` is that of what comes from now on.
    fn count(&mut self, cost: u32, now: Instant, window: Duration) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= self.window {
            let is_next = elapsed < 2 * self.window;
            self.previous = if is_next { self.current } else { 0 };
            self.since = if is_next { self.since + self.window } else { now };
            self.current = 0;
            self.window = window;
        }
        self.current = self.current.saturating_add(cost);
    }

    fn recent(&self) -> u32 {
        self.current.max(self.previous)
    }

    /// How many tokens will be requested in this time at the current rate.
    fn within(&self, time: Duration) -> u32 {
        let asked = u128::from(self.recent()) * time.as_micros() / self.window.as_micros();
        u32::try_from(asked).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use tollkeeper_core::{Key, RuleSpec, State, decide};

    use super::super::batch::RequestAnswer;
    use super::*;

    /// Tokens on their way back were counted nowhere. A simulation that ended at such a moment missed 40 tokens of a rule: they
    /// could not be returned, since others had drawn in between, and were spendable again a moment later.
    #[test]
    fn tokens_on_their_way_back_are_still_leased() {
        let (now, at) = (Instant::now(), Timestamp::from_micros(1_700_000_000_000_000));
        let rule = RuleSpec { limit: "20,000/day".into(), lease: Some(50.into()), ..RuleSpec::default() };
        let rule = RuleSpec { name: "hoard".into(), key: "k".into(), ..rule }.build().expect("a valid rule");
        let charge = Charge::new(Arc::new(rule), Key { variant: 0, value: "k".into() }, 1);
        let (decision, change) = decide(charge.quota(), 40, &State::Fresh, at);
        let lease = Lease::of(charge.quota(), 40, &change);
        let answer = RequestAnswer { decisions: vec![decision], lease, ..RequestAnswer::default() };

        let leases = Leases::new();
        let (holding, _) = leases.holding(&charge, now).expect("a rule with leases");
        holding.taken(Ok(Answered { answer, now: at, asked_at: now }), now);
        assert_eq!(leases.tokens(now), 40);
        let sent_back = || leases.sweep(now, true).and_then(|mut back| back.pop()).expect("they are sent back");
        let returning = sent_back();
        assert_eq!(leases.tokens(now), 40, "on their way");
        returning.keep(&[false]);
        assert_eq!(leases.tokens(now), 40, "others have drawn since");
        sent_back().keep(&[true]);
        assert_eq!(leases.tokens(now), 0);
    }
}
