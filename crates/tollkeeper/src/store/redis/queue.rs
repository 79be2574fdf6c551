//! Requests that arrive while a call is under way wait, and then go out together.
//!
//! There is no timer: an idle limiter sends a request at once and alone, a busy one sends as many as have gathered.
//! A request that nobody waits for any more (its deadline has passed) is not sent.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;
use tollkeeper_core::{Charge, Key, Timestamp};

use super::batch::{Ask, Batch, RequestAnswer};
use super::node::Refusal;
use crate::store::error::StoreError;

/// What a request gets, and what it has to know to go on by this process's clock.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) answer: RequestAnswer,
    /// When it was decided, by the server's clock,
    pub(super) now: Timestamp,
    /// which was not before this moment.
    pub(super) asked_at: Instant,
}

/// Who waits for an answer.
pub(super) type Waiter = oneshot::Sender<Result<Answered, Refusal>>;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    pub(super) charges: Vec<Charge>,
    /// 1, or how many tokens a lease should have.
    pub(super) count: u32,
    pub(super) waiter: Waiter,
}

#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Pending>,
    /// What they would take a server, about.
    work: usize,
    /// How many calls are under way.
    calls: usize,
}

impl Queue {
    /// Two calls overlap, so that the server works on one while the answers of the other travel.
    const CALLS: usize = 2;
    /// The most work of one call, in keys: what the server computes without keeping others waiting for long.
    const WORK: usize = 64;
    /// The most requests of one call. Equal ones cost the server nothing, but each is answered here.
    const REQUESTS: usize = 1_024;
    /// Requests that wait at most. Beyond that the server is far behind, and a request would miss its deadline anyway.
    const LENGTH: usize = 16_384;

    /// Adds a request. Returns a batch if a call may start now; the caller has to carry it out and then ask `next`.
    ///
    /// A call starts when none is under way. Beside another one only a whole batch goes out: smaller ones would cost
    /// the server more for each request.
    pub(super) fn push(&self, pending: Pending) -> Option<Vec<Pending>> {
        let mut waiting = self.waiting();
        if waiting.requests.len() >= Self::LENGTH {
            let late = StoreError::unavailable("too many requests wait for it");
            let _ = pending.waiter.send(Err(Refusal::Failed(late)));
            return None;
        }
        waiting.work += work_beside(waiting.requests.back(), &pending);
        waiting.requests.push_back(pending);
        let is_a_batch = waiting.work >= Self::WORK || waiting.requests.len() >= Self::REQUESTS;
        let may_start = waiting.calls == 0 || (waiting.calls < Self::CALLS && is_a_batch);
        if !may_start {
            return None;
        }
        waiting.calls += 1;
        Some(waiting.take())
    }

    /// What the caller of an ended call has to send next; `None` ends its duty.
    pub(super) fn next(&self) -> Option<Vec<Pending>> {
        let mut waiting = self.waiting();
        let batch = waiting.take();
        if batch.is_empty() {
            waiting.calls -= 1;
            return None;
        }
        Some(batch)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting().requests.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Takes as much as one call may hold.
    fn take(&mut self) -> Vec<Pending> {
        let mut batch: Vec<Pending> = Vec::new();
        let mut work = 0;
        while let Some(next) = self.requests.front() {
            if next.waiter.is_closed() {
                self.requests.pop_front();
                continue;
            }
            work += work_beside(batch.last(), next);
            if !batch.is_empty() && (work > Queue::WORK || batch.len() == Queue::REQUESTS) {
                break;
            }
            batch.extend(self.requests.pop_front());
        }
        // A run of equal requests that was cut counts as taken; the next batch will know better.
        self.work = if self.requests.is_empty() { 0 } else { self.work.saturating_sub(work) };
        batch
    }
}

/// What a request adds to the work of a call. A run of equal requests, as a hot key makes, is the work of one.
fn work_beside(before: Option<&Pending>, next: &Pending) -> usize {
    if before.is_some_and(|before| before.ask == next.ask && same(&before.charges, &next.charges)) {
        return 0;
    }
    // A log is a list, which takes a script several commands.
    let work = |charge: &Charge| if charge.quota().algorithm().keeps_log() { 3 } else { 1 };
    next.charges.iter().map(work).sum()
}

fn same(one: &[Charge], other: &[Charge]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| identity(one) == identity(other))
}

type Identity<'c> = (usize, Option<usize>, &'c Key, u32);

/// Equal charges: of one rule (not only of its name), on the same terms, to one key, at one cost.
fn identity(charge: &Charge) -> Identity<'_> {
    let terms = charge.terms().map(|terms| Arc::as_ptr(terms).addr());
    (Arc::as_ptr(&charge.rule).addr(), terms, &charge.key, charge.cost)
}

/// What goes out in one call: entries of equal requests, and who waits for each.
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

/// Puts equal requests together. More than one group only while rules change, when one key has two quotas.
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

/// Each kind once, in the order of its first, with all who wait for it. Leases are not added up.
fn kinds(pending: Vec<Pending>) -> Vec<Kind> {
    if pending.len() == 1 {
        let kind = |Pending { ask, charges, count, waiter }| Kind { ask, charges, count, waiting: vec![waiter] };
        return pending.into_iter().map(kind).collect();
    }
    let mut known: HashMap<(Ask, Vec<Identity<'_>>), usize> = HashMap::new();
    let mut count = 0;
    let kind_of: Vec<usize> = pending
        .iter()
        .map(|one| {
            let new = count;
            let identity = (one.ask, one.charges.iter().map(identity).collect());
            let kind = if one.ask == Ask::Lease { new } else { *known.entry(identity).or_insert(new) };
            count += usize::from(kind == new);
            kind
        })
        .collect();
    drop(known);
    let mut kinds: Vec<Kind> = Vec::with_capacity(count);
    for (Pending { ask, charges, count, waiter }, kind) in pending.into_iter().zip(kind_of) {
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
