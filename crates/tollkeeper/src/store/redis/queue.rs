//! Batches requests: those that arrive while a call is in flight wait, and then go out together.
//!
//! There is no timer: an idle limiter sends a request at once and alone, a busy one sends as many as have gathered.
//! The longer the round trip to the server, the more calls are in flight at the same time. A request that has waited
//! too long is shed, and one whose caller has given up is not sent.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper_core::{Charge, Enforcement, Key};

use super::batch::{Ask, Batch};
use super::callers::Waiter;
use super::instant::Instant;

/// A request in the queue.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    pub(super) charges: Vec<Charge>,
    /// 1, or the number of tokens to lease.
    pub(super) count: u32,
    /// Since when it has been waiting.
    pub(super) since: Instant,
    pub(super) waiter: Waiter,
}

/// What happened to a request that was added.
#[derive(Debug)]
pub(super) enum Pushed {
    /// A call starts now: the caller has to make it, with what [`Queue::next`] returns.
    Start,
    /// It waits.
    Waits,
    /// Requests before it have already waited too long.
    Shed,
}

/// What to send next, and the requests that have waited too long.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) batch: Vec<Pending>,
    pub(super) late: Vec<Pending>,
}

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// To the server.
    pub(super) round_trip: Duration,
    /// How long a request may wait for its turn.
    pub(super) patience: Duration,
}

impl Pace {
    /// From here on the network takes longer than the server's work.
    const FAR: Duration = Duration::from_millis(1);

    fn is_far(self) -> bool {
        self.round_trip >= Pace::FAR
    }

    /// How many calls overlap: two for a near server, so that it works on one while the answers of the other are in
    /// transit; more if most of a call is transit.
    fn calls(self) -> usize {
        const MOST: usize = 16;
        if self.is_far() { (2 * self.round_trip.as_millis() as usize).clamp(2, MOST) } else { 2 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Pending>,
    /// Roughly how much work they are for the server.
    work: usize,
    /// How many calls are in flight.
    calls: usize,
}

impl Queue {
    /// The most work per call, in keys: what the server computes without delaying others for long.
    const WORK: usize = 64;
    /// How much work must wait before a second call starts beside the first. With less, requests would cost the server more. With
    /// more, the server and its callers would take turns, and one of them would always be idle.
    const WORK_BESIDE: usize = 16;
    /// The most requests per call. Equal ones cost the server nothing, but each is answered here.
    const REQUESTS: usize = 1_024;

    /// Adds a request.
    ///
    /// A call starts when none is in flight. Another one starts beside it when enough work waits; with a distant server at
    /// once, because waiting there costs more than small calls.
    pub(super) fn push(&self, pending: Pending, pace: Pace) -> Pushed {
        let mut waiting = self.waiting();
        let now = pending.since;
        if waiting.requests.front().is_some_and(|first| first.has_waited(pace.patience, now)) {
            return Pushed::Shed;
        }
        waiting.work += work_beside(waiting.requests.back(), &pending);
        waiting.requests.push_back(pending);
        let is_enough = waiting.work >= Self::WORK_BESIDE || waiting.requests.len() >= Self::REQUESTS;
        let may_start = waiting.calls == 0 || (waiting.calls < pace.calls() && (is_enough || pace.is_far()));
        if !may_start {
            return Pushed::Waits;
        }
        waiting.calls += 1;
        // What it sends is taken when it is sent: requests that arrive until then go out with it.
        Pushed::Start
    }

    /// What the caller of a call has to send first, and then after each; `None` when there is nothing more, which ends it.
    pub(super) fn next(&self, patience: Duration) -> Option<Turn> {
        let mut waiting = self.waiting();
        let turn = waiting.take(patience, Instant::now());
        if turn.batch.is_empty() && turn.late.is_empty() {
            waiting.calls -= 1;
            return None;
        }
        Some(turn)
    }

    /// Takes out the requests that have waited this long.
    pub(super) fn waited(&self, so_long: Duration) -> Vec<Pending> {
        let (mut waiting, now) = (self.waiting(), Instant::now());
        let count = waiting.requests.partition_point(|pending| pending.has_waited(so_long, now));
        let waited = waiting.requests.drain(..count).collect();
        if waiting.requests.is_empty() {
            waiting.work = 0;
        }
        waited
    }

    /// How many are waiting.
    pub(super) fn len(&self) -> usize {
        self.waiting().requests.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn has_waited(&self, so_long: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > so_long
    }
}

impl Waiting {
    /// Takes as much as one call may hold, and all requests that have waited too long.
    fn take(&mut self, patience: Duration, now: Instant) -> Turn {
        let mut turn = Turn::default();
        let mut work = 0;
        while let Some(next) = self.requests.front() {
            if next.waiter.is_gone() {
                self.requests.pop_front();
                continue;
            }
            if next.has_waited(patience, now) {
                turn.late.extend(self.requests.pop_front());
                continue;
            }
            let more = work_beside(turn.batch.last(), next);
            if !turn.batch.is_empty() && (work + more > Queue::WORK || turn.batch.len() == Queue::REQUESTS) {
                break;
            }
            work += more;
            turn.batch.extend(self.requests.pop_front());
        }
        // If a run of equal requests was cut, its work counts as taken; the next batch recounts it.
        self.work = if self.requests.is_empty() { 0 } else { self.work.saturating_sub(work) };
        turn
    }
}

/// The work that a request adds to a call. A run of equal requests, as from a hot key, is the work of one.
fn work_beside(before: Option<&Pending>, next: &Pending) -> usize {
    if before.is_some_and(|before| before.ask == next.ask && same(&before.charges, &next.charges)) {
        return 0;
    }
    // A log is a list, for which a script needs several commands.
    let work = |charge: &Charge| if charge.quota().algorithm().keeps_log() { 3 } else { 1 };
    next.charges.iter().map(work).sum()
}

fn same(one: &[Charge], other: &[Charge]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| identity(one) == identity(other))
}

type Identity<'c> = (usize, Option<usize>, Enforcement, &'c Key, u32);

/// Equal charges have the same rule (not only its name), terms, say, key and cost.
fn identity(charge: &Charge) -> Identity<'_> {
    let terms = charge.terms().map(|terms| Arc::as_ptr(terms).addr());
    (Arc::as_ptr(&charge.rule).addr(), terms, charge.enforcement(), &charge.key, charge.cost)
}

/// What equal requests have in common.
struct Alike<'p> {
    ask: Ask,
    charges: &'p [Charge],
}

impl PartialEq for Alike<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.ask == other.ask && same(self.charges, other.charges)
    }
}

impl Eq for Alike<'_> {}

impl Hash for Alike<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Of what tells most requests apart: each further piece costs as much as a short key.
        for charge in self.charges {
            (Arc::as_ptr(&charge.rule).addr().rotate_left(32) ^ charge.cost as usize).hash(state);
            charge.key.value.hash(state);
        }
    }
}

/// One call: entries of equal requests, and the waiters of each.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) batch: Batch,
    pub(super) waiting: Vec<Vec<Waiter>>,
}

impl Group {
    fn new(namespace: &Arc<str>) -> Group {
        Group { batch: Batch::new(namespace.clone()), waiting: Vec::new() }
    }
}

/// Groups equal requests. There is more than one group only while rules change, when one key has two quotas.
pub(super) fn grouped(pending: Vec<Pending>, namespace: &Arc<str>) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![Group::new(namespace)];
    for Kind { ask, mut charges, count, waiting } in kinds(pending) {
        for group in 0.. {
            if group == groups.len() {
                groups.push(Group::new(namespace));
            }
            match groups[group].batch.push(ask, charges, count) {
                Ok(()) => {
                    groups[group].waiting.push(waiting);
                    break;
                }
                Err(back) => charges = back,
            }
        }
    }
    groups
}

/// Requests that are alike.
struct Kind {
    ask: Ask,
    charges: Vec<Charge>,
    count: u32,
    waiting: Vec<Waiter>,
}

/// Each kind once, in order of first occurrence, with all of its waiters. Leases are not summed.
fn kinds(pending: Vec<Pending>) -> Vec<Kind> {
    if pending.len() == 1 {
        let kind = |Pending { ask, charges, count, waiter, .. }| Kind { ask, charges, count, waiting: vec![waiter] };
        return pending.into_iter().map(kind).collect();
    }
    let mut known: HashMap<Alike<'_>, usize> = HashMap::with_capacity(pending.len());
    let mut count = 0;
    let kind_of: Vec<usize> = pending
        .iter()
        .map(|one| {
            let new = count;
            let kind = if one.ask == Ask::Lease {
                new
            } else {
                *known.entry(Alike { ask: one.ask, charges: &one.charges }).or_insert(new)
            };
            count += usize::from(kind == new);
            kind
        })
        .collect();
    drop(known);
    let mut kinds: Vec<Kind> = Vec::with_capacity(count);
    for (Pending { ask, charges, count, waiter, .. }, kind) in pending.into_iter().zip(kind_of) {
        match kinds.get_mut(kind) {
            Some(kind) => {
                kind.count += 1;
                kind.waiting.push(waiter);
            }
            None => kinds.push(Kind { ask, charges, count, waiting: vec![waiter] }),
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use tollkeeper_core::RuleSpec;

    use super::*;

    /// The first request of a burst was sent alone, and the others had to wait for its reply.
    #[test]
    fn a_burst_goes_out_in_one_call() {
        let rule = RuleSpec { name: "r".into(), key: "k".into(), limit: "1/s".into(), ..RuleSpec::default() };
        let rule = Arc::new(rule.build().expect("a valid rule"));
        let pace = Pace { round_trip: Duration::ZERO, patience: Duration::from_secs(60) };
        let (queue, mut waiting) = (Queue::default(), Vec::new());
        for nth in 0..5 {
            let (waiter, wait) = Waiter::here();
            waiting.push(wait);
            let charges = vec![Charge::new(rule.clone(), Key { variant: 0, value: nth.to_string() }, 1)];
            let pending = Pending { ask: Ask::Charge, charges, count: 1, since: Instant::now(), waiter };
            assert_eq!(matches!(queue.push(pending, pace), Pushed::Start), nth == 0);
        }
        assert_eq!(queue.next(pace.patience).map(|turn| turn.batch.len()), Some(5));
        assert!(queue.next(pace.patience).is_none(), "nothing is left");
    }
}
