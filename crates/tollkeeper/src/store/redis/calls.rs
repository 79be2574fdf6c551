//! The path of a request to a server: through the queue of its hash slot, into a call with others, and back.

use std::sync::Arc;

use redis::Value;
use tollkeeper_core::{Algorithm, BucketRef, Charge, Key, RuleSpec, Timestamp};

use super::across::Part;
use super::batch::{Ask, Batch, ReplyError, RequestAnswer};
use super::callers::{Answered, Deliveries, Wait, Waiter};
use super::instant::Instant;
use super::node::{Refusal, Work};
use super::nodes::{Nodes, Slot};
use super::queue::{self, Group, Pace, Pending, Pushed, Turn};
use super::script::At;
use super::server::{ConnectError, ask};
use super::shared::{Decided, Shared};
use super::stored::state_key;
use crate::store::error::StoreError;

impl Shared {
    /// Decides in the store: charged, or charged as an estimate. The caller needs no deadline of its own: both the wait for a call
    /// and the wait for its reply are bounded.
    pub(super) async fn decide(self: &Arc<Self>, charges: &[Charge], ask: Ask) -> Result<Decided, StoreError> {
        if charges.is_empty() {
            return Ok(Decided { decisions: Vec::new(), booked: Vec::new(), asked_at: Instant::now() });
        }
        let place = self.overload.enter()?;
        let slot = self.slot(&charges[0]);
        let is_one = charges.iter().all(|charge| self.slot(charge) == slot);
        // What most requests do not need is boxed: every request has room for the rest, and is moved with it.
        if !is_one {
            return Box::pin(self.spawn_across(self.parts(charges), ask)).await;
        }
        let asked = if place.is_alone() && self.nodes.is_callable_here() {
            Box::pin(self.ask_here(slot, ask, charges)).await
        } else {
            self.answered(self.submit(slot, ask, charges.to_vec(), 1)).await
        };
        match asked {
            Ok(Answered { answer: RequestAnswer { decisions, booked, .. }, asked_at, .. }) => {
                Ok(Decided { decisions, booked, asked_at })
            }
            // Its keys are migrating to another node, and each is on one of the two.
            Err(Refusal::TryAgain) => Box::pin(self.spawn_across(self.single_parts(charges), ask)).await,
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// In a task of its own: the caller may give up, and what was reserved must still be refunded.
    async fn spawn_across(self: &Arc<Self>, parts: Vec<Part>, ask: Ask) -> Result<Decided, StoreError> {
        self.io.run(Arc::clone(self).decide_across(parts, ask)).await?
    }

    pub(super) fn slot(&self, charge: &Charge) -> Slot {
        match &self.nodes {
            // Without building a key.
            Nodes::One(_) => 0,
            Nodes::Cluster(_) => self.nodes.slot(&self.key(charge.bucket())),
        }
    }

    /// Runs once what will be run all the time, to find out whether this user has the rights.
    pub(super) async fn rehearse(&self) -> Result<(), ConnectError> {
        let charge = |algorithm: Algorithm| {
            let (name, key, limit) = (format!("startup-{algorithm}"), "startup".into(), "1/s".into());
            let rule = RuleSpec { name, key, limit, algorithm, ..RuleSpec::default() }.build().ok()?;
            Some(Charge::new(Arc::new(rule), Key { variant: 0, value: "startup".into() }, 1))
        };
        let charges: Vec<Charge> = [Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::SlidingWindowLog]
            .into_iter()
            .filter_map(charge)
            .collect();
        let keys: Vec<String> = charges.iter().map(|charge| self.key(charge.bucket())).collect();
        let (Some(first), mut batch) = (keys.first(), Batch::new(self.namespace.clone())) else { return Ok(()) };
        let _ = batch.push(Ask::Charge, charges, 1);
        // On a connection of its own and without a deadline: a busy machine must not hide a missing right.
        let mut connection = self.nodes.owner(self.nodes.slot(first))?.open().await?;
        let charged: Result<Value, _> = ask(&mut connection, &batch.script().eval(&batch.call(self.when()))).await;
        // Of one that was found, which only some scripts do.
        let moved: Result<Value, _> = ask(&mut connection, redis::cmd("INCRBY").arg(first).arg(0)).await;
        let removed: Result<Value, _> = ask(&mut connection, redis::cmd("DEL").arg(&keys)).await;
        for outcome in [charged, moved, removed] {
            let reason = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            // Any other error may be temporary, and is handled when it occurs.
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

    /// Queues a request for its hash slot.
    pub(super) fn submit(
        self: &Arc<Self>,
        slot: Slot,
        ask: Ask,
        charges: Vec<Charge>,
        count: u32,
    ) -> Result<Wait, StoreError> {
        self.nodes.admit(slot)?;
        let (waiter, wait) = Waiter::here();
        let pending = Pending { ask, charges, count, since: Instant::now(), waiter };
        let pace = Pace { round_trip: self.nodes.round_trip(slot), patience: self.overload.patience() };
        match self.queues[usize::from(slot)].push(pending, pace) {
            // The caller may give up, and others wait for the same call.
            Pushed::Start => self.io.spawn(Arc::clone(self).drive(slot)),
            Pushed::Waits => {}
            Pushed::Shed => return Err(self.overload.shed(1).into()),
        }
        Ok(wait)
    }

    pub(super) async fn answered(&self, wait: Result<Wait, StoreError>) -> Result<Answered, Refusal> {
        let ended = |_| Err(Refusal::Failed(StoreError::unavailable("the call ended without an answer")));
        wait.map_err(Refusal::Failed)?.await.unwrap_or_else(ended)
    }

    /// Sends the calls of a hash slot until its queue is empty.
    pub(super) async fn drive(self: Arc<Self>, slot: Slot) {
        let mut duty = Duty { shared: Some(&self), slot };
        let mut deliveries = Deliveries::default();
        while let Some(Turn { batch, late }) = self.queues[usize::from(slot)].next(self.overload.patience()) {
            self.shed(late, &mut deliveries);
            let answered = batch.len();
            for group in queue::grouped(batch, &self.namespace) {
                self.call(slot, group, &mut deliveries).await;
            }
            self.gather(slot, answered, &mut deliveries).await;
            deliveries.recall();
        }
        duty.shared = None;
        deliveries.finish().await;
    }

    fn shed(&self, late: Vec<Pending>, deliveries: &mut Deliveries) {
        if !late.is_empty() {
            self.overload.shed(late.len() as u64);
        }
        deliveries.send(late.into_iter().map(|pending| (pending.waiter, Err(Refusal::Overloaded))));
    }

    /// Lets callers that were just answered ask again: a call for a few of them costs the server as much as one for
    /// all. Up to three callers are not waited for.
    async fn gather(&self, slot: Slot, answered: usize, deliveries: &mut Deliveries) {
        const FEW: usize = 3;
        if answered > FEW && self.queues[usize::from(slot)].len() < answered {
            deliveries.settle().await;
        }
    }

    /// A request that is alone is sent by its own task, which saves a hop to another thread and back.
    async fn ask_here(self: &Arc<Self>, slot: Slot, ask: Ask, charges: &[Charge]) -> Result<Answered, Refusal> {
        let nothing = || Refusal::Failed(StoreError::unavailable("it decided nothing"));
        self.nodes.admit(slot).map_err(Refusal::Failed)?;
        let mut batch = Batch::new(self.namespace.clone());
        // An empty batch takes everything.
        batch.push(ask, charges.to_vec(), 1).map_err(|_| nothing())?;
        let (asked_at, call) = (Instant::now(), batch.call(self.when()));
        let ask = |call| {
            let work = Work::Script(batch.script(), call);
            self.nodes.call_here(&self.io, work, |value| answers(&batch, value))
        };
        let mut answered = ask(&call).await;
        if let Err(Refusal::OtherTime(about)) = answered {
            answered = ask(&batch.call(At::Server { about })).await;
        }
        self.counts.count(1, asked_at.elapsed());
        if matches!(answered, Err(Refusal::Overloaded)) {
            self.overload.shed(1);
        }
        let (answers, now) = answered.map_err(|refusal| match refusal {
            Refusal::Full(keys) if !keys.is_empty() => self.refuse(batch.charges_of(&keys).concat()),
            refusal => refusal,
        })?;
        self.note_time(now);
        let answer = answers.into_iter().next().ok_or_else(nothing)?;
        Ok(Answered { answer, now, asked_at })
    }

    /// One call without batching.
    pub(super) async fn ask_alone(&self, slot: Slot, ask: Ask, charges: Vec<Charge>) -> Result<Answered, Refusal> {
        let ((waiter, wait), mut deliveries) = (Waiter::here(), Deliveries::default());
        for group in
            queue::grouped(vec![Pending { ask, charges, count: 1, since: Instant::now(), waiter }], &self.namespace)
        {
            self.call(slot, group, &mut deliveries).await;
        }
        self.answered(Ok(wait)).await
    }

    /// One call for many requests; another one without those that need new keys, where the server is full.
    pub(super) async fn call(&self, slot: Slot, group: Group, deliveries: &mut Deliveries) {
        let mut next = Some(group);
        while let Some(group) = next {
            next = self.call_once(slot, group, deliveries).await;
        }
    }

    /// Returns what is to be sent again.
    async fn call_once(&self, slot: Slot, group: Group, deliveries: &mut Deliveries) -> Option<Group> {
        let Group { batch, waiting } = group;
        let requests = waiting.iter().map(Vec::len).sum();
        let asked_at = Instant::now();
        let read = |value| answers(&batch, value);
        let answered = self.call_at(slot, batch.script(), |when| batch.call(when), read).await;
        self.counts.count(requests, asked_at.elapsed());
        match answered {
            Ok((answers, now)) => {
                self.note_time(now);
                let answers = answers.into_iter().map(|answer| Ok(Answered { answer, now, asked_at }));
                deliveries.send(waiting.into_iter().flatten().zip(answers));
                None
            }
            Err(Refusal::Full(keys)) if !keys.is_empty() => {
                self.refuse_new(Group { batch, waiting }, &keys, deliveries)
            }
            Err(refusal) => {
                let waiting = waiting.into_iter().flatten();
                // A request that has waited for as long as a call may take, while calls failed, has waited for the
                // server.
                let queued = match &refusal {
                    Refusal::Failed(_) | Refusal::Late(_) => self.queues[usize::from(slot)].waited(self.deadline),
                    _ => Vec::new(),
                };
                // In a crowd one late reply proves no failure, and would let the whole crowd pass. The breaker has to agree.
                let is_unproven = matches!(refusal, Refusal::Late(_))
                    && self.overload.is_crowded()
                    && !self.nodes.is_known_to_fail(slot);
                let refusal = if is_unproven { Refusal::Overloaded } else { refusal };
                if matches!(refusal, Refusal::Overloaded) {
                    self.overload.shed((requests + queued.len()) as u64);
                }
                let refused = waiting.chain(queued.into_iter().map(|pending| pending.waiter));
                deliveries.send(refused.map(|waiter| (waiter, Err(refusal.clone()))));
                None
            }
        }
    }
}

/// A batch's answers, and when they were decided. An unusable reply is a failure like any other: the breaker has to
/// learn of it.
fn answers(batch: &Batch, value: Value) -> Result<(Vec<RequestAnswer>, Timestamp), StoreError> {
    let unusable = |error: ReplyError| StoreError::unavailable(error.to_string());
    let reply = batch.reply(value).map_err(unusable)?;
    Ok((batch.answer(&reply).map_err(unusable)?, reply.now))
}

/// A drop guard of the task that makes calls: when it ends, even by a panic, it wakes the queue, so that waiting
/// requests are sent next.
struct Duty<'s> {
    /// `None` once it is done.
    shared: Option<&'s Arc<Shared>>,
    slot: Slot,
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.io.spawn(Arc::clone(shared).drive(self.slot));
        }
    }
}
