//! The way of a request to a server: through the queue of its slot, into a call with others, and back.

use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use tokio::sync::oneshot;
use tollkeeper_core::{Algorithm, BucketRef, Charge, Key, RuleSpec};

use super::across::Part;
use super::batch::{Ask, Batch, ReplyError, RequestAnswer};
use super::node::{Refusal, Work};
use super::nodes::{Nodes, Slot};
use super::queue::{self, Answered, Group, Pending};
use super::server::{ConnectError, ask};
use super::shared::{Decided, Shared};
use super::stored::state_key;
use crate::store::error::StoreError;

impl Shared {
    /// By the store, within the deadline: to be charged, or reserved.
    pub(super) async fn decide(self: &Arc<Self>, charges: &[Charge], ask: Ask) -> Result<Decided, StoreError> {
        if charges.is_empty() {
            return Ok(Decided { decisions: Vec::new(), receipts: Vec::new(), asked_at: Instant::now() });
        }
        let slot = self.slot(&charges[0]);
        let is_one = charges.iter().all(|charge| self.slot(charge) == slot);
        let decided = async {
            if !is_one {
                return self.in_time(self.spawn_across(self.parts(charges))).await;
            }
            let asked = match ask {
                Ask::Charge => self.ask(slot, charges.to_vec()).await,
                _ => self.in_time(self.answered(self.submit(slot, ask, charges.to_vec(), 1))).await,
            };
            match asked {
                Ok(Answered { answer: RequestAnswer { decisions, receipts, .. }, asked_at, .. }) => {
                    Ok(Decided { decisions, receipts, asked_at })
                }
                // Its keys are on their way to another node, and each is in one place.
                Err(Refusal::TryAgain) => self.in_time(self.spawn_across(self.single_parts(charges))).await,
                Err(refusal) => Err(refusal),
            }
        };
        Ok(decided.await?)
    }

    /// A request that one call decides: carried out here if it may go out at once, else by whoever is under way.
    pub(super) async fn ask(self: &Arc<Self>, slot: Slot, charges: Vec<Charge>) -> Result<Answered, Refusal> {
        self.nodes.admit(slot).map_err(Refusal::Failed)?;
        let (waiter, wait) = oneshot::channel();
        let pending = Pending { ask: Ask::Charge, charges, count: 1, waiter };
        match self.queues[usize::from(slot)].push(pending) {
            // Alone it is carried out here, which saves the way to another task. The call has its own deadline, and its
            // end must be heard: the breaker learns from it.
            Some(batch) if batch.len() == 1 => {
                let duty = Duty { shared: self, slot };
                for group in queue::grouped(batch, &self.namespace) {
                    self.call(slot, group).await;
                }
                drop(duty);
                return self.answered(Ok(wait)).await;
            }
            Some(batch) => drop(tokio::spawn(Arc::clone(self).drive(slot, batch))),
            None => {}
        }
        self.in_time(self.answered(Ok(wait))).await
    }

    pub(super) async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let late = |_| Err(Refusal::Failed(StoreError::unavailable(format!("no answer within {:?}", self.deadline))));
        tokio::time::timeout(self.deadline, answer).await.unwrap_or_else(late)
    }

    /// In a task of its own: whoever asked may give up, and what was reserved has to be given back all the same.
    pub(super) async fn spawn_across(self: &Arc<Self>, parts: Vec<Part>) -> Result<Decided, Refusal> {
        let decided = tokio::spawn(Arc::clone(self).decide_across(parts)).await;
        let ended = |_| Err(StoreError::unavailable("the call ended without an answer"));
        decided.unwrap_or_else(ended).map_err(Refusal::Failed)
    }

    pub(super) fn slot(&self, charge: &Charge) -> Slot {
        match &self.nodes {
            // Without making a key of it.
            Nodes::One(_) => 0,
            Nodes::Cluster(_) => self.nodes.slot(&self.key(charge.bucket())),
        }
    }

    /// Does once what will be done all the time, to find out whether this user may.
    pub(super) async fn rehearse(&self) -> Result<(), ConnectError> {
        let charge = |algorithm: Algorithm| {
            let (name, key, limit) = (format!("startup-{algorithm}"), "startup".into(), "1/s".into());
            let rule = RuleSpec { name, key, limit, algorithm, ..RuleSpec::default() }.build().ok()?;
            Some(Charge::new(Arc::new(rule), Key { variant: 0, value: "startup".into() }, 1))
        };
        let charges: Vec<Charge> =
            [Algorithm::TokenBucket, Algorithm::SlidingWindowLog].into_iter().filter_map(charge).collect();
        let keys: Vec<String> = charges.iter().map(|charge| self.key(charge.bucket())).collect();
        let (Some(first), mut batch) = (keys.first(), Batch::new(self.namespace.clone())) else { return Ok(()) };
        let _ = batch.push(Ask::Charge, charges, 1);
        // On a connection of its own and without a hurry: a busy machine must not hide what is missing.
        let mut connection = self.nodes.owner(self.nodes.slot(first))?.open().await?;
        let charged: Result<Value, _> = ask(&mut connection, &batch.script().eval(&batch.call(None))).await;
        let removed: Result<Value, _> = ask(&mut connection, redis::cmd("DEL").arg(&keys)).await;
        for outcome in [charged, removed] {
            let reason = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            // Any other trouble may pass, and has its own answer while it lasts.
            if ["NOPERM", "permission", "can't run this command"].iter().any(|word| reason.contains(word)) {
                return Err(ConnectError::Permission(reason));
            }
        }
        Ok(())
    }

    /// The key of a state.
    pub(super) fn key(&self, bucket: BucketRef<'_>) -> String {
        state_key(&self.namespace, bucket.rule, bucket.key)
    }

    /// Puts a request into the queue of its slot.
    pub(super) fn submit(
        self: &Arc<Self>,
        slot: Slot,
        ask: Ask,
        charges: Vec<Charge>,
        count: u32,
    ) -> Result<oneshot::Receiver<Result<Answered, Refusal>>, StoreError> {
        self.nodes.admit(slot)?;
        let (waiter, wait) = oneshot::channel();
        if let Some(batch) = self.queues[usize::from(slot)].push(Pending { ask, charges, count, waiter }) {
            // A task of its own: whoever asked may give up, and others wait for the same call.
            tokio::spawn(Arc::clone(self).drive(slot, batch));
        }
        Ok(wait)
    }

    pub(super) async fn answered(
        &self,
        wait: Result<oneshot::Receiver<Result<Answered, Refusal>>, StoreError>,
    ) -> Result<Answered, Refusal> {
        let ended = |_| Err(Refusal::Failed(StoreError::unavailable("the call ended without an answer")));
        wait.map_err(Refusal::Failed)?.await.unwrap_or_else(ended)
    }

    /// Carries out the calls of a slot until nobody waits any more.
    pub(super) async fn drive(self: Arc<Self>, slot: Slot, batch: Vec<Pending>) {
        let mut next = Some(batch);
        while let Some(batch) = next {
            for group in queue::grouped(batch, &self.namespace) {
                self.call(slot, group).await;
            }
            self.gather(slot).await;
            next = self.queues[usize::from(slot)].next();
        }
    }

    /// Lets those who were just answered ask again, as long as more of them do: no time passes but theirs.
    pub(super) async fn gather(&self, slot: Slot) {
        const ROUNDS: usize = 32;
        const WITHOUT_MORE: usize = 3;
        let queue = &self.queues[usize::from(slot)];
        let (mut before, mut in_vain) = (queue.len(), 0);
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
            let now = queue.len();
            in_vain = if now > before { 0 } else { in_vain + 1 };
            if in_vain == WITHOUT_MORE {
                return;
            }
            before = now;
        }
    }

    /// One call without waiting for others.
    pub(super) async fn ask_alone(&self, slot: Slot, ask: Ask, charges: Vec<Charge>) -> Result<Answered, Refusal> {
        let (waiter, wait) = oneshot::channel();
        for group in queue::grouped(vec![Pending { ask, charges, count: 1, waiter }], &self.namespace) {
            self.call(slot, group).await;
        }
        self.answered(Ok(wait)).await
    }

    /// One call for many requests.
    pub(super) async fn call(&self, slot: Slot, group: Group) {
        let Group { batch, waiting } = group;
        let requests = waiting.iter().map(Vec::len).sum();
        let asked_at = Instant::now();
        let call = batch.call(self.given_time());
        let answers = |value: Value| {
            // A reply that cannot be used is a failure like any other: the breaker has to learn of it.
            let unusable = |error: ReplyError| StoreError::unavailable(error.to_string());
            let reply = batch.reply(value).map_err(unusable)?;
            Ok((batch.answer(&reply).map_err(unusable)?, reply.now))
        };
        let answered = self.nodes.call(slot, Work::Script(batch.script(), &call), answers).await;
        self.counts.count(requests, asked_at.elapsed());
        match answered {
            Ok((answers, now)) => {
                self.note_time(now);
                for (waiter, answer) in waiting.into_iter().flatten().zip(answers.into_iter().flatten()) {
                    let _ = waiter.send(Ok(Answered { answer, now, asked_at }));
                }
            }
            Err(refusal) => {
                for waiter in waiting.into_iter().flatten() {
                    let _ = waiter.send(Err(refusal.clone()));
                }
            }
        }
    }
}

/// The duty of whoever carries out a call: to see to those who wait meanwhile. Kept also by one who gives up.
struct Duty<'s> {
    shared: &'s Arc<Shared>,
    slot: Slot,
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if let Some(batch) = self.shared.queues[usize::from(self.slot)].next() {
            tokio::spawn(Arc::clone(self.shared).drive(self.slot, batch));
        }
    }
}
