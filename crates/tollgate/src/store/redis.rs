//! State in Redis or Valkey, decided by a script next to it, on the server's own clock.
//!
//! Requests that arrive while a call is under way go out together in the next one, and equal ones as one sum, so a busy
//! limiter costs the server a fraction of a call a request. What was denied is not asked for again before it can pass,
//! and a rule may take tokens ahead of use. Every request has a deadline, and a breaker stops calling a server that does not
//! answer.

mod across;
mod address;
mod batch;
mod breaker;
mod denials;
mod heartbeat;
mod leases;
mod msgpack;
mod node;
mod nodes;
mod queue;
mod route;
mod script;
mod server;
mod stored;
mod traffic;

pub use batch::{Answer, Ask, Batch, Reply, ReplyError};
pub use breaker::BreakerState;
pub use script::{CHARGE, CHARGE_BUCKETS, CHARGE_ONE, Call, REFUND, RELEASE, Script};
pub use server::{ConnectError, Server};
pub use stored::{read_log, read_string, state_key};
pub use traffic::{DURATION_BOUNDS, Traffic};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::oneshot;
use tollgate_core::{Charge, Decision, Hold, Key, Quota, Rule, Source, Span, State, Timestamp, decide};

use super::StoreError;
use crate::clock::Clock;
use across::denies;
use address::{Address, Mode};
use denials::Denials;
use leases::{Leases, Spent, Wanted};
use node::{Node, Refusal, Work};
use nodes::{Cluster, Nodes, Slot};
use queue::{Answered, Group, Pending, Queue};
use route::Route;
use traffic::Counts;

/// Keeps state in a Redis or Valkey server, or in a cluster of them. Clones share the connections.
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

struct Shared {
    nodes: Nodes,
    server: Server,
    /// A manual clock decides by its own time instead of the server's: for replay and tests.
    clock: Clock,
    deadline: Duration,
    /// One per slot: only keys of one slot go out in one call.
    queues: Box<[Queue]>,
    counts: Counts,
    /// What is decided here and not by a given time.
    ahead: Option<Ahead>,
    instances: AtomicU32,
}

/// What saves calls, as long as time passes here as it does on the server.
struct Ahead {
    denials: Denials,
    leases: Leases,
}

/// What a store said to a request.
struct Decided {
    decisions: Vec<Decision>,
    /// It was decided not before this moment.
    asked_at: Instant,
}

/// How a store is connected.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long a request may wait for its decision.
    pub deadline: Duration,
    /// A manual clock decides by its own time instead of the server's: for replay and tests.
    pub clock: Clock,
    /// Certificates for `rediss://`, where those that the system trusts are not meant.
    pub tls: Option<RedisTls>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        RedisOptions { deadline: Duration::from_millis(20), clock: Clock::system(), tls: None }
    }
}

/// Certificates and key in PEM format.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Who vouches for the server, instead of those that the system trusts.
    pub authority: Option<Vec<u8>>,
    /// The certificate that this client shows,
    pub certificate: Option<Vec<u8>>,
    /// and its key.
    pub key: Option<Vec<u8>>,
}

/// Not the key.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedisTls { authority, certificate, .. } = self;
        let shown = (authority.is_some(), certificate.is_some());
        f.debug_struct("RedisTls").field("authority", &shown.0).field("certificate", &shown.1).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects, and refuses a server that could not decide: too old, a read-only replica, or scripts forbidden.
    ///
    /// `redis://USER:PASSWORD@HOST:PORT/DATABASE` is one server, `redis+cluster://A,B,C` a cluster of which some nodes are
    /// named, `redis+sentinel://A,B,C/NAME` the primary that these sentinels know; `rediss` instead of `redis` means TLS.
    pub async fn connect(url: &str, options: RedisOptions) -> Result<RedisStore, ConnectError> {
        let RedisOptions { deadline, clock, tls } = options;
        let (nodes, server) = connect(Address::parse(url, tls.as_ref())?, deadline).await?;
        let is_real_time = matches!(clock, Clock::System(_));
        let shared = Arc::new(Shared {
            queues: (0..nodes.slots()).map(|_| Queue::default()).collect(),
            nodes,
            server,
            clock,
            deadline,
            counts: Counts::default(),
            ahead: is_real_time.then(|| Ahead { denials: Denials::new(), leases: Leases::new() }),
            instances: AtomicU32::new(1),
        });
        if is_real_time {
            heartbeat::start(&shared);
        }
        Ok(RedisStore(shared))
    }

    /// Whether a URL can be understood. Whether a server is there is known when it is connected.
    pub fn check_url(url: &str) -> Result<(), ConnectError> {
        Address::parse(url, None).map(drop)
    }

    /// What was found at the other end.
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// The clock of this process, or the manual one. Decisions are made by the server's.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Whether calls go out: in a cluster, the worst of all nodes.
    pub fn breaker(&self) -> BreakerState {
        self.0.nodes.breaker_state()
    }

    /// The calls that went out so far.
    pub fn traffic(&self) -> Traffic {
        self.0.counts.read()
    }

    /// How many stores are connected to the same server, in all processes, by their last signs of life.
    pub fn instances(&self) -> u32 {
        self.0.instances.load(Relaxed)
    }

    /// Tokens that were taken ahead of use and are not spent yet. A process that is killed takes them along.
    pub fn leased_tokens(&self) -> u64 {
        self.0.ahead.as_ref().map_or(0, |ahead| ahead.leases.tokens(Instant::now()))
    }

    /// Gives leased tokens back: what to do last before a process ends.
    pub async fn return_leases(&self) {
        if let Some(ahead) = &self.0.ahead
            && let Some(back) = ahead.leases.sweep(Instant::now(), true)
        {
            self.0.give_back(back).await;
        }
    }

    /// Decides all charges together, all or nothing, and says who decided: the store, a denial that was remembered, or a
    /// lease.
    pub async fn charge(&self, charges: &[Charge]) -> Result<Vec<(Decision, Source)>, StoreError> {
        if charges.is_empty() {
            return Ok(Vec::new());
        }
        let Some(Ahead { denials, .. }) = &self.0.ahead else {
            return Ok(from(Source::Store, self.0.decide(charges).await?.decisions));
        };
        let id = denials.id(charges);
        if let Some(decisions) = denials.recall(id, Instant::now()) {
            return Ok(from(Source::DenyCache, decisions));
        }
        let (decided, asked_at) = self.0.charge(charges).await?;
        let decisions: Vec<Decision> = decided.iter().map(|(decision, _)| *decision).collect();
        if denies(charges, &decisions) {
            denials.remember(id, charges, &decisions, asked_at, Instant::now());
        }
        Ok(decided)
    }

    /// What a bucket would say to a request of cost 1, without touching it: `remaining` is uncharged.
    pub async fn inspect(&self, rule: &Rule, key: &Key) -> Result<Decision, StoreError> {
        let (state, now) = self.0.read(&rule.quota, &state_key(&rule.name, key)).await?;
        let (untouched, _) = decide(&rule.quota, 0, &state, now);
        let (asked, _) = decide(&rule.quota, 1, &state, now);
        Ok(Decision { outcome: asked.outcome, hold: None, ..untouched })
    }

    /// Forgets a bucket; false when there was nothing to forget.
    pub async fn reset(&self, rule: &Rule, key: &Key) -> Result<bool, StoreError> {
        // What is idle may still be stored for a moment, and is as good as forgotten.
        let counted = self.inspect(rule, key).await?.reset_after > Span::ZERO;
        let key_text = state_key(&rule.name, key);
        let removed: i64 = self.0.command(&key_text, redis::cmd("DEL").arg(&key_text)).await?;
        if let Some(Ahead { denials, leases }) = &self.0.ahead {
            leases.forget(&rule.name, key);
            denials.forget_all();
        }
        Ok(counted && removed > 0)
    }

    /// Gives a `concurrency` slot back; false when it had expired or was given back before.
    pub async fn release(&self, rule: &Rule, key: &Key, hold: Hold) -> Result<bool, StoreError> {
        let key = state_key(&rule.name, key);
        let slot = self.0.nodes.slot(&key);
        let call = Call::release(key, &rule.quota, hold, self.0.given_time());
        self.0.nodes.admit(slot)?;
        let released: i64 = self.0.nodes.call(slot, Work::Script(&RELEASE, &call), read).await?;
        Ok(released > 0)
    }
}

async fn connect(address: Address, deadline: Duration) -> Result<(Nodes, Server), ConnectError> {
    let route = match &address.mode {
        Mode::Single => Route::Direct(address.client(address.hosts[0].clone())?),
        Mode::Sentinel { name } => Route::Sentinel { name: name.clone(), address: address.clone() },
        Mode::Cluster => {
            let cluster = Cluster::connect(address, deadline).await?;
            let mut found = None;
            let primaries = cluster.primaries();
            for node in &primaries {
                let mut connection = node.open().await?;
                server::teach(&mut connection).await?;
                let server = server::identify(&mut connection).await?;
                // Any warning is one of the cluster.
                if found.as_ref().is_none_or(|found: &Server| found.warning().is_none()) {
                    found = Some(server);
                }
            }
            let server = found.ok_or(ConnectError::Incomplete(0))?;
            return Ok((Nodes::Cluster(cluster), Server { primaries: primaries.len(), ..server }));
        }
    };
    let mut connection = route.open().await?;
    let server = server::identify(&mut connection).await?;
    let other = |problem: &str| Err(ConnectError::Mode(problem.to_string()));
    match server.mode.as_str() {
        "cluster" => return other("the server is a node of a cluster; write redis+cluster://HOST:PORT,HOST:PORT"),
        "sentinel" => return other("the server is a sentinel; write redis+sentinel://HOST:PORT,HOST:PORT/NAME"),
        _ if server.is_replica => return Err(ConnectError::Replica),
        _ => server::teach(&mut connection).await?,
    }
    Ok((Nodes::One(Arc::new(Node::new(route, connection, deadline))), server))
}

impl Shared {
    /// From leases as far as they reach, and from the store for the rest.
    async fn charge(self: &Arc<Self>, charges: &[Charge]) -> Result<(Vec<(Decision, Source)>, Instant), StoreError> {
        let now = Instant::now();
        let is_leased = charges.iter().any(|charge| charge.rule.lease.is_some());
        let Some(leases) = self.ahead.as_ref().map(|ahead| &ahead.leases).filter(|_| is_leased) else {
            let Decided { decisions, asked_at } = self.decide(charges).await?;
            return Ok((from(Source::Store, decisions), asked_at));
        };
        let mut spent: Vec<Option<Spent>> = Vec::with_capacity(charges.len());
        let mut asked = Vec::new();
        for charge in charges {
            let holding = leases.holding(charge, now).map(|(holding, is_first)| {
                if is_first {
                    self.sweep_leases();
                }
                holding
            });
            let served = match &holding {
                Some(holding) => {
                    holding.serve(charge, now, |wanted| drop(tokio::spawn(self.clone().take(wanted)))).await
                }
                None => None,
            };
            if served.is_none() {
                asked.push((charge.clone(), holding));
            }
            spent.push(served);
        }
        let (rest, holdings): (Vec<Charge>, Vec<_>) = asked.into_iter().unzip();
        let decided = match self.decide(&rest).await {
            Ok(decided) => decided,
            Err(error) => {
                for spent in spent.into_iter().flatten() {
                    spent.put_back();
                }
                return Err(error);
            }
        };
        for (holding, decision) in holdings.into_iter().zip(&decided.decisions) {
            if let Some(holding) = holding {
                holding.learn(*decision, now);
            }
        }
        let is_denied = denies(&rest, &decided.decisions);
        let mut decisions = decided.decisions.into_iter();
        let mut answers = Vec::with_capacity(charges.len());
        for served in spent {
            match served {
                Some(spent) if is_denied => answers.push((spent.put_back(), Source::Lease)),
                Some(spent) => answers.push((spent.decision, Source::Lease)),
                // There is a decision for each that was asked for.
                None => answers.extend(decisions.next().map(|decision| (decision, Source::Store))),
            }
        }
        Ok((answers, decided.asked_at))
    }

    /// By the store, within the deadline.
    async fn decide(self: &Arc<Self>, charges: &[Charge]) -> Result<Decided, StoreError> {
        if charges.is_empty() {
            return Ok(Decided { decisions: Vec::new(), asked_at: Instant::now() });
        }
        let slot = self.slot(&charges[0]);
        let is_one = charges.iter().all(|charge| self.slot(charge) == slot);
        let decided = async {
            if !is_one {
                return self.in_time(self.spawn_across(self.parts(charges))).await;
            }
            match self.ask(slot, charges.to_vec()).await {
                Ok(Answered { answer, asked_at, .. }) => Ok(Decided { decisions: answer.decisions, asked_at }),
                // Its keys are on their way to another node, and each is in one place.
                Err(Refusal::TryAgain) => self.in_time(self.spawn_across(self.single_parts(charges))).await,
                Err(refusal) => Err(refusal),
            }
        };
        Ok(decided.await?)
    }

    /// A request that one call decides: carried out here if it may go out at once, else by whoever is under way.
    async fn ask(self: &Arc<Self>, slot: Slot, charges: Vec<Charge>) -> Result<Answered, Refusal> {
        self.nodes.admit(slot).map_err(Refusal::Failed)?;
        let (waiter, wait) = oneshot::channel();
        let pending = Pending { ask: Ask::Charge, charges, count: 1, waiter };
        match self.queues[usize::from(slot)].push(pending) {
            // Alone it is carried out here, which saves the way to another task. The call has its own deadline, and its
            // end must be heard: the breaker learns from it.
            Some(batch) if batch.len() == 1 => {
                let duty = Duty { shared: self, slot };
                for group in queue::grouped(batch) {
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

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let late = |_| Err(Refusal::Failed(StoreError::unavailable(format!("no answer within {:?}", self.deadline))));
        tokio::time::timeout(self.deadline, answer).await.unwrap_or_else(late)
    }

    /// In a task of its own: whoever asked may give up, and what was reserved has to be given back all the same.
    async fn spawn_across(self: &Arc<Self>, parts: Vec<across::Part>) -> Result<Decided, Refusal> {
        let decided = tokio::spawn(Arc::clone(self).decide_across(parts)).await;
        let ended = |_| Err(StoreError::unavailable("the call ended without an answer"));
        decided.unwrap_or_else(ended).map_err(Refusal::Failed)
    }

    fn slot(&self, charge: &Charge) -> Slot {
        match &self.nodes {
            // Without making a key of it.
            Nodes::One(_) => 0,
            Nodes::Cluster(_) => self.nodes.slot(&state_key(&charge.rule.name, &charge.key)),
        }
    }

    /// Puts a request into the queue of its slot.
    fn submit(
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

    async fn answered(
        &self,
        wait: Result<oneshot::Receiver<Result<Answered, Refusal>>, StoreError>,
    ) -> Result<Answered, Refusal> {
        let ended = |_| Err(Refusal::Failed(StoreError::unavailable("the call ended without an answer")));
        wait.map_err(Refusal::Failed)?.await.unwrap_or_else(ended)
    }

    /// Carries out the calls of a slot until nobody waits any more.
    async fn drive(self: Arc<Self>, slot: Slot, batch: Vec<Pending>) {
        let mut next = Some(batch);
        while let Some(batch) = next {
            for group in queue::grouped(batch) {
                self.call(slot, group).await;
            }
            self.gather(slot).await;
            next = self.queues[usize::from(slot)].next();
        }
    }

    /// Lets those who were just answered ask again, as long as more of them do: no time passes but theirs.
    async fn gather(&self, slot: Slot) {
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
    async fn ask_alone(&self, slot: Slot, ask: Ask, charges: Vec<Charge>) -> Result<Answered, Refusal> {
        let (waiter, wait) = oneshot::channel();
        for group in queue::grouped(vec![Pending { ask, charges, count: 1, waiter }]) {
            self.call(slot, group).await;
        }
        self.answered(Ok(wait)).await
    }

    /// One call for many requests.
    async fn call(&self, slot: Slot, group: Group) {
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

    /// Takes tokens ahead of use.
    async fn take(self: Arc<Self>, wanted: Wanted) {
        let Wanted { holding, token, tokens } = wanted;
        let wait = self.submit(self.slot(&token), Ask::Lease, vec![token], tokens);
        let answered = self.answered(wait).await.ok();
        holding.taken(answered, Instant::now());
    }

    /// Looks after idle leases for as long as there are any.
    fn sweep_leases(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Leases::SWEEP).await;
                let Some(shared) = shared.upgrade() else { return };
                let Some(back) = shared.ahead.as_ref().and_then(|ahead| ahead.leases.sweep(Instant::now(), false))
                else {
                    return;
                };
                shared.give_back(back).await;
            }
        });
    }

    async fn give_back(self: &Arc<Self>, buckets: Vec<Vec<(Charge, tollgate_core::Receipt)>>) {
        for receipts in buckets {
            let Some((charge, _)) = receipts.first() else { continue };
            let slot = self.slot(charge);
            Arc::clone(self).refund(slot, receipts).await;
        }
    }

    /// A state as it is stored, and the time.
    async fn read(&self, quota: &Quota, key: &str) -> Result<(State, Timestamp), StoreError> {
        let mut command = redis::cmd(if quota.algorithm().keeps_log() { "LRANGE" } else { "MGET" });
        command.arg(key);
        if quota.algorithm().keeps_log() {
            // The first item is a header, made of the others.
            command.arg(1).arg(-1);
        }
        let now = match self.given_time() {
            Some(now) => now,
            None => {
                let (seconds, micros): (u64, u64) = self.command(key, &redis::cmd("TIME")).await?;
                Timestamp::from_micros(seconds * 1_000_000 + micros)
            }
        };
        let items: Vec<Option<Vec<u8>>> = match self.command(key, &command).await {
            // What an algorithm kept that the rule has no longer.
            Err(StoreError::Unavailable { reason }) if reason.contains("WRONGTYPE") => Vec::new(),
            other => other?,
        };
        let bytes = items.into_iter().flatten().flatten().collect::<Vec<u8>>();
        let state = if quota.algorithm().keeps_log() { read_log(&bytes) } else { read_string(&bytes) };
        Ok((state, now))
    }

    /// On the node of a key.
    async fn command<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, StoreError> {
        let slot = self.nodes.slot(key);
        self.nodes.admit(slot)?;
        Ok(self.nodes.call(slot, Work::Command(command), read).await?)
    }

    fn given_time(&self) -> Option<Timestamp> {
        match &self.clock {
            Clock::System(_) => None,
            Clock::Manual(clock) => Some(clock.now()),
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

fn from(source: Source, decisions: Vec<Decision>) -> Vec<(Decision, Source)> {
    decisions.into_iter().map(|decision| (decision, source)).collect()
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, StoreError> {
    T::from_redis_value(value).map_err(|error| StoreError::unavailable(error.to_string()))
}

/// Not the address, which may carry a password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.0.server).finish_non_exhaustive()
    }
}
