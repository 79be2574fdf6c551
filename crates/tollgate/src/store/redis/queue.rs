//! Requests that arrive while a call is under way wait, and then go out together.
//!
//! There is no timer: an idle limiter sends a request at once and alone, a busy one sends as many as have gathered.
//! A request that nobody waits for any more (its deadline has passed) is not sent.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;
use tollgate_core::{Charge, Key, Timestamp};

use super::batch::{Answer, Ask, Batch};
use super::node::Refusal;
use crate::store::StoreError;

/// What a request gets, and what it has to know to go on by this process's clock.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) answer: Answer,
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
    /// How many calls are under way.
    calls: usize,
}

impl Queue {
    /// Two calls overlap, so that the server works on one while the answers of the other travel. More would only make
    /// batches smaller.
    const CALLS: usize = 2;
    /// The most keys of one call: what the server computes without keeping others waiting for long.
    const KEYS: usize = 64;
    /// The most requests of one call. Equal ones cost the server nothing, but each is answered here.
    const REQUESTS: usize = 1_024;
    /// Requests that wait at most. Beyond that the server is far behind, and a request would miss its deadline anyway.
    const LENGTH: usize = 16_384;

    /// Adds a request. Returns a batch if a call may start now; the caller has to carry it out and then ask `next`.
    pub(super) fn push(&self, pending: Pending) -> Option<Vec<Pending>> {
        let mut waiting = self.waiting();
        if waiting.requests.len() >= Self::LENGTH {
            let _ = pending.waiter.send(Err(Refusal::Failed(StoreError::unavailable("too many requests wait for it"))));
            return None;
        }
        waiting.requests.push_back(pending);
        if waiting.calls == Self::CALLS {
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

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn take(&mut self) -> Vec<Pending> {
        let mut batch: Vec<Pending> = Vec::new();
        let mut keys = 0;
        while let Some(next) = self.requests.front() {
            if next.waiter.is_closed() {
                self.requests.pop_front();
                continue;
            }
            // A run of equal requests, as a hot key makes, counts once.
            let repeats = batch.last().is_some_and(|last| last.ask == next.ask && same(&last.charges, &next.charges));
            keys += if repeats { 0 } else { next.charges.len() };
            if !batch.is_empty() && (keys > Queue::KEYS || batch.len() == Queue::REQUESTS) {
                break;
            }
            batch.extend(self.requests.pop_front());
        }
        batch
    }
}

fn same(one: &[Charge], other: &[Charge]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| identity(one) == identity(other))
}

type Identity<'c> = (usize, &'c Key, u32);

/// Equal charges: of one rule (not only of its name), to one key, at one cost.
fn identity(charge: &Charge) -> Identity<'_> {
    (Arc::as_ptr(&charge.rule).addr(), &charge.key, charge.cost)
}

/// What goes out in one call: entries of equal requests, and who waits for each.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) batch: Batch,
    pub(super) waiting: Vec<Vec<Waiter>>,
}

/// Puts equal requests together. More than one group only while rules change, when one key has two quotas.
pub(super) fn grouped(pending: Vec<Pending>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for Kind { ask, charges, count, waiting } in kinds(pending) {
        let fits = groups.iter().position(|group| group.batch.takes(&charges));
        let at = fits.unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() - 1
        });
        groups[at].batch.push(ask, charges, count);
        groups[at].waiting.push(waiting);
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
