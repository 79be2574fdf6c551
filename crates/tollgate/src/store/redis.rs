//! State in Redis or Valkey, decided by a script next to it, on the server's own clock.
//!
//! Requests that arrive while a call is under way go out together in the next one, and equal ones as one sum, so a busy
//! limiter costs the server a fraction of a call a request. Every request has a deadline, and a breaker stops calling
//! a server that does not answer.

mod batch;
mod breaker;
mod msgpack;
mod queue;
mod script;
mod server;
mod stored;

pub use batch::{Batch, Reply, ReplyError};
pub use breaker::BreakerState;
pub use script::{CHARGE, Call, REFUND, RELEASE, Script};
pub use server::{ConnectError, Server};
pub use stored::{read_log, read_string, state_key};

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use redis::aio::ConnectionManager;
use tokio::sync::oneshot;
use tollgate_core::{Charge, Decision, Hold, Key, Quota, Rule, Span, State, Timestamp, decide};

use super::StoreError;
use crate::clock::Clock;
use breaker::Breaker;
use queue::{Answer, Pending, Queue};

/// Keeps state in one Redis or Valkey server. Clones share the connection.
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

struct Shared {
    client: redis::Client,
    /// Replaced as a whole when it has failed for long: a connection can hang or keep an error for ever.
    connection: ArcSwap<ConnectionManager>,
    is_renewing: AtomicBool,
    server: Server,
    /// A manual clock decides by its own time instead of the server's: for replay and tests.
    clock: Clock,
    deadline: Duration,
    queue: Queue,
    breaker: Mutex<Breaker>,
    /// What the breaker's times count from.
    origin: Instant,
    calls: AtomicU64,
    requests: AtomicU64,
}

/// How a store is connected.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long a request may wait for its decision.
    pub deadline: Duration,
    /// A manual clock decides by its own time instead of the server's: for replay and tests.
    pub clock: Clock,
}

impl Default for RedisOptions {
    fn default() -> Self {
        RedisOptions { deadline: Duration::from_millis(20), clock: Clock::system() }
    }
}

impl RedisStore {
    /// Connects, and refuses a server that could not decide: too old, a read-only replica, or scripts forbidden.
    pub async fn connect(url: &str, options: RedisOptions) -> Result<RedisStore, ConnectError> {
        let (client, connection, server) = server::connect(url, options.deadline).await?;
        Ok(RedisStore(Arc::new(Shared {
            client,
            connection: ArcSwap::from_pointee(connection),
            is_renewing: AtomicBool::new(false),
            server,
            clock: options.clock,
            deadline: options.deadline,
            queue: Queue::default(),
            breaker: Mutex::new(Breaker::new()),
            origin: Instant::now(),
            calls: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        })))
    }

    /// What was found at the other end.
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// The clock of this process, or the manual one. Decisions are made by the server's.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Whether calls go out.
    pub fn breaker(&self) -> BreakerState {
        self.0.breaker().state()
    }

    /// How many calls went out so far, and for how many requests.
    pub fn traffic(&self) -> (u64, u64) {
        (self.0.calls.load(Relaxed), self.0.requests.load(Relaxed))
    }

    /// Decides all charges together: all or nothing, in one round trip.
    pub async fn charge(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        if charges.is_empty() {
            return Ok(Vec::new());
        }
        self.0.admit()?;
        let (answer, decided) = oneshot::channel();
        if let Some(batch) = self.0.queue.push(Pending { charges: charges.to_vec(), answer }) {
            // A task of its own: whoever asked may give up, and others wait for the same call.
            tokio::spawn(Arc::clone(&self.0).drive(batch));
        }
        match tokio::time::timeout(self.0.deadline, decided).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::unavailable("the call ended without an answer")),
            Err(_) => Err(StoreError::unavailable(format!("no answer within {:?}", self.0.deadline))),
        }
    }

    /// What a bucket would say to a request of cost 1, without touching it: `remaining` is uncharged.
    pub async fn inspect(&self, rule: &Rule, key: &Key) -> Result<Decision, StoreError> {
        let (state, now) = self.0.read(&rule.quota, state_key(&rule.name, key)).await?;
        let (untouched, _) = decide(&rule.quota, 0, &state, now);
        let (asked, _) = decide(&rule.quota, 1, &state, now);
        Ok(Decision { outcome: asked.outcome, hold: None, ..untouched })
    }

    /// Forgets a bucket; false when there was nothing to forget.
    pub async fn reset(&self, rule: &Rule, key: &Key) -> Result<bool, StoreError> {
        // What is idle may still be stored for a moment, and is as good as forgotten.
        let counted = self.inspect(rule, key).await?.reset_after > Span::ZERO;
        let mut command = redis::cmd("DEL");
        command.arg(state_key(&rule.name, key));
        let removed: i64 = self.0.command(&command).await?;
        Ok(counted && removed > 0)
    }

    /// Gives a `concurrency` slot back; false when it had expired or was given back before.
    pub async fn release(&self, rule: &Rule, key: &Key, hold: Hold) -> Result<bool, StoreError> {
        let call = Call::release(state_key(&rule.name, key), &rule.quota, hold, self.0.given_time());
        self.0.admit()?;
        let released: i64 = self.0.guarded(self.0.evaluate(&RELEASE, &call)).await?;
        Ok(released > 0)
    }
}

impl Shared {
    /// Carries out calls until nobody waits any more.
    async fn drive(self: Arc<Self>, batch: Vec<Pending>) {
        let mut next = Some(batch);
        while let Some(batch) = next {
            if !batch.is_empty() {
                self.call(batch).await;
                if self.breaker().state() == BreakerState::Open {
                    self.renew_connection();
                }
            }
            next = self.queue.next();
        }
    }

    /// One call for many requests.
    async fn call(&self, pending: Vec<Pending>) {
        for group in grouped(pending) {
            self.calls.fetch_add(1, Relaxed);
            self.requests.fetch_add(group.waiting.iter().map(|equal| equal.len() as u64).sum(), Relaxed);
            let unusable = |error: ReplyError| StoreError::unavailable(error.to_string());
            // A reply that cannot be used is a failure like any other: the breaker has to learn of it.
            let answers = self.guarded(async {
                let value: redis::Value = self.evaluate(&CHARGE, &group.batch.call(self.given_time())).await?;
                group.batch.answer(&Reply::try_from(value).map_err(unusable)?).map_err(unusable)
            });
            match answers.await {
                Ok(answers) => {
                    let waiting = group.waiting.into_iter().flatten();
                    for (answer, decisions) in waiting.zip(answers.into_iter().flatten()) {
                        let _ = answer.send(Ok(decisions));
                    }
                }
                Err(error) => {
                    for answer in group.waiting.into_iter().flatten() {
                        let _ = answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Runs a script by its hash, and by its text where the server has forgotten it (restart, failover, flush).
    async fn evaluate<T: redis::FromRedisValue>(&self, script: &Script, call: &Call) -> Result<T, StoreError> {
        let mut connection = self.connection();
        match script.evalsha(call).query_async(&mut connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => script.eval(call).query_async(&mut connection).await,
            other => other,
        }
        .map_err(from_redis)
    }

    fn connection(&self) -> ConnectionManager {
        ConnectionManager::clone(&self.connection.load())
    }

    /// A state as it is stored, and the time.
    async fn read(&self, quota: &Quota, key: String) -> Result<(State, Timestamp), StoreError> {
        let mut state = redis::cmd(if quota.algorithm().keeps_log() { "LRANGE" } else { "MGET" });
        state.arg(key);
        if quota.algorithm().keeps_log() {
            // The first item is a header, made of the others.
            state.arg(1).arg(-1);
        }
        let now = match self.given_time() {
            Some(now) => now,
            None => {
                let (seconds, micros): (u64, u64) = self.command(&redis::cmd("TIME")).await?;
                Timestamp::from_micros(seconds * 1_000_000 + micros)
            }
        };
        let read = async {
            match state.query_async(&mut self.connection()).await {
                // What an algorithm kept that the rule has no longer.
                Err(error) if error.code() == Some("WRONGTYPE") => Ok(Vec::new()),
                other => other.map_err(from_redis),
            }
        };
        let items: Vec<Option<Vec<u8>>> = self.guarded(read).await?;
        let bytes = items.into_iter().flatten().flatten().collect::<Vec<u8>>();
        let state = if quota.algorithm().keeps_log() { read_log(&bytes) } else { read_string(&bytes) };
        Ok((state, now))
    }

    async fn command<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, StoreError> {
        self.admit()?;
        self.guarded(async { command.query_async(&mut self.connection()).await.map_err(from_redis) }).await
    }

    /// Within the deadline, and the breaker learns how it went.
    async fn guarded<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let late = |_| Err(StoreError::unavailable(format!("no answer within {:?}", self.deadline)));
        let outcome = tokio::time::timeout(self.deadline, call).await.unwrap_or_else(late);
        match &outcome {
            Ok(_) if self.breaker().succeeded() => tracing::info!("the store answers again; its breaker is closed"),
            Ok(_) => {}
            Err(error) => {
                if self.breaker().failed(self.origin.elapsed()) {
                    tracing::error!("the store does not answer; its breaker is open: {error}");
                }
            }
        }
        outcome
    }

    /// Connects anew, in the background and one at a time.
    fn renew_connection(self: &Arc<Self>) {
        if self.is_renewing.swap(true, Relaxed) {
            return;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            match server::open(&shared.client, shared.deadline).await {
                Ok(connection) => shared.connection.store(Arc::new(connection)),
                Err(error) => tracing::warn!("cannot reach the store yet: {error}"),
            }
            shared.is_renewing.store(false, Relaxed);
        });
    }

    fn admit(&self) -> Result<(), StoreError> {
        if self.breaker().may_call(self.origin.elapsed()) {
            return Ok(());
        }
        Err(StoreError::unavailable("the breaker is open after repeated failures"))
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given_time(&self) -> Option<Timestamp> {
        match &self.clock {
            Clock::System(_) => None,
            Clock::Manual(clock) => Some(clock.now()),
        }
    }
}

/// What goes out in one call: entries of equal requests, and who waits for each.
#[derive(Default)]
struct Group {
    batch: Batch,
    waiting: Vec<Vec<oneshot::Sender<Answer>>>,
}

/// Puts equal requests together. More than one group only while rules change, when one key has two quotas.
fn grouped(pending: Vec<Pending>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (charges, waiting) in queue::equal(pending) {
        let fits = groups.iter().position(|group| group.batch.takes(&charges));
        let at = fits.unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() - 1
        });
        groups[at].batch.push(charges, waiting.len() as u32);
        groups[at].waiting.push(waiting);
    }
    groups
}

fn from_redis(error: redis::RedisError) -> StoreError {
    StoreError::unavailable(error.to_string())
}

/// Not the address, which may carry a password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.0.server).finish_non_exhaustive()
    }
}
