//! Requests that arrive while a call is under way wait, and then go out together.
//!
//! There is no timer: an idle limiter sends a request at once and alone, a busy one sends as many as have gathered.
//! A request that nobody waits for any more (its deadline has passed) is not sent.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tollgate_core::{Charge, Decision, Key};

use crate::store::StoreError;

/// What a request gets: a decision per charge.
pub(super) type Answer = Result<Vec<Decision>, StoreError>;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) charges: Vec<Charge>,
    pub(super) answer: oneshot::Sender<Answer>,
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
            let _ = pending.answer.send(Err(StoreError::unavailable("too many requests wait for it")));
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
            if next.answer.is_closed() {
                self.requests.pop_front();
                continue;
            }
            // A run of equal requests, as a hot key makes, counts once.
            let repeats = batch.last().is_some_and(|last| same(&last.charges, &next.charges));
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

/// Requests that are alike, each kind once and in the order of its first, with all who wait for it.
pub(super) fn equal(pending: Vec<Pending>) -> Vec<(Vec<Charge>, Vec<oneshot::Sender<Answer>>)> {
    let (charges, answers): (Vec<Vec<Charge>>, Vec<_>) =
        pending.into_iter().map(|pending| (pending.charges, pending.answer)).unzip();
    let mut kinds: HashMap<Vec<Identity<'_>>, usize> = HashMap::new();
    let mut kind_of = Vec::with_capacity(charges.len());
    for one in &charges {
        let next = kinds.len();
        kind_of.push(*kinds.entry(one.iter().map(identity).collect()).or_insert(next));
    }
    let mut equal: Vec<(Vec<Charge>, Vec<_>)> = Vec::with_capacity(kinds.len());
    drop(kinds);
    for ((charges, answer), kind) in charges.into_iter().zip(answers).zip(kind_of) {
        if kind == equal.len() {
            equal.push((charges, Vec::new()));
        }
        equal[kind].1.push(answer);
    }
    equal
}
