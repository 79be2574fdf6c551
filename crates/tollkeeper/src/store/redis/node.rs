//! One server: a connection that reconnects, a deadline for every call, and a circuit breaker.
//!
//! Calls are made by the store's own thread ([`Io`](super::io::Io)). A deadline counts from when the command was
//! written until its reply is read, so it measures the server and not this process.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tollkeeper_core::Timestamp;

use super::breaker::{Breaker, BreakerState};
use super::full;
use super::instant::Instant;
use super::io::Io;
use super::link::ConnectionManager;
use super::outages::Outages;
use super::overload::Overload;
use super::round_trip::RoundTrip;
use super::route::{Found, Route};
use super::script::{Call, Script};
use super::sentinel::{Primary, Sentinels};
use super::server::ConnectError;
use crate::store::error::{Overloaded, StoreError};

/// A server to call.
pub(super) struct Node {
    route: Route,
    /// Replaced as a whole when it has failed for long: a connection can hang or keep an error forever.
    connection: ArcSwap<ConnectionManager>,
    /// Where the connection goes, if sentinels said so. Changed together with it.
    primary: Mutex<Option<Primary>>,
    /// Another connection, for callers that make their call themselves. It lives in their runtime.
    of_callers: Option<ArcSwap<ConnectionManager>>,
    is_renewing: AtomicBool,
    breaker: Mutex<Breaker>,
    outages: Outages,
    /// What the breaker's times count from.
    origin: Instant,
    deadline: Duration,
    round_trip: RoundTrip,
    /// Bounds the calls in flight; the others wait here, where the deadline does not run yet.
    turns: Semaphore,
}

/// What a node is asked to do.
#[derive(Clone, Copy)]
pub(super) enum Work<'w> {
    /// By its hash, and then by its text if the server has lost it (restart, failover, flush).
    Script(&'w Script, &'w Call),
    /// By its text.
    Text(&'w Script, &'w Call),
    Command(&'w Cmd),
}

impl<'w> Work<'w> {
    /// The same by its text, if this reply says that the server does not have the script. Nothing was run.
    fn by_text(self, reply: &Result<Value, RedisError>) -> Option<Work<'w>> {
        match (self, reply) {
            (Work::Script(script, call), Err(error)) if error.code() == Some("NOSCRIPT") => {
                Some(Work::Text(script, call))
            }
            _ => None,
        }
    }
}

/// Reads a reply and keeps what it says; an unusable one is an error. Not a type parameter: calls are compiled once, and not for
/// each kind of reply in every crate that makes calls.
pub(super) type Read<'r> = dyn FnMut(Value) -> Result<(), StoreError> + Send + 'r;

/// What came of waiting for a reply.
enum Awaited {
    Reply(Result<Value, RedisError>),
    /// It did not arrive within the deadline.
    Late,
    /// This process was not scheduled for so long that nobody knows whether the server would have been on time.
    Standstill,
}

/// Why a node did not do it.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// The slot now belongs to the node at this address (`MOVED`).
    Moved(String),
    /// The node at this address has to be asked this once (`ASK`): the slot is migrating to it.
    Ask(String),
    /// Some of the keys have moved and some have not; all soon will have (`TRYAGAIN`).
    TryAgain,
    /// This process is overloaded: the call waited too long for its turn and was not made, or it was made and this process
    /// had no time to read the reply. Says nothing about the node.
    Overloaded,
    /// It has reached its `maxmemory`, and these keys of the call would be new, counted from 1; none if it is not a call that
    /// names them.
    Full(Vec<usize>),
    /// Its clock shows this time, for which the call has no windows of a calendar. Nothing was done.
    OtherTime(Timestamp),
    /// It did not reply within its deadline.
    Late(Duration),
    /// Anything else.
    Failed(StoreError),
}

impl Node {
    /// Calls in flight at the same time: enough to keep a server busy, and few enough that none waits in its queue
    /// for long.
    const CALLS: usize = 32;
    /// The steps in which a deadline is measured,
    const SHORTEST_STEP: Duration = Duration::from_millis(1);
    const LONGEST_STEP: Duration = Duration::from_millis(20);
    /// how late a timer is in any case,
    const TIMER: Duration = Duration::from_millis(2);
    /// and how long a call may be awaited in all beyond its deadline.
    const STANDSTILL: Duration = Duration::from_millis(500);
    /// How often a caller asks whether the server answers while its own reply does not arrive.
    const ROUNDS: usize = 10;

    /// With a connection that is opened on first use.
    pub(super) fn lazy(route: Route, client: &redis::Client, deadline: Duration) -> Result<Node, ConnectError> {
        let connection = super::server::lazy(client)?;
        Ok(Node::new(route, Found { connection, primary: None }, deadline))
    }

    pub(super) fn new(route: Route, found: Found, deadline: Duration) -> Node {
        Node {
            of_callers: route.lazy().map(ArcSwap::from_pointee),
            route,
            connection: ArcSwap::from_pointee(found.connection),
            primary: Mutex::new(found.primary),
            is_renewing: AtomicBool::new(false),
            breaker: Mutex::new(Breaker::new()),
            outages: Outages::new(),
            origin: Instant::now(),
            deadline,
            round_trip: RoundTrip::new(),
            turns: Semaphore::new(Node::CALLS),
        }
    }

    /// The round trip time to it.
    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip.shortest()
    }

    /// A new, working connection.
    pub(super) async fn open(&self) -> Result<ConnectionManager, ConnectError> {
        self.route.open().await
    }

    /// Where it is.
    pub(super) fn host(&self) -> &str {
        self.route.host()
    }

    /// The sentinels that say where it is, if any.
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        self.route.sentinels()
    }

    /// Where it is, if sentinels said so.
    pub(super) fn primary(&self) -> Option<Primary> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        self.breaker().state()
    }

    /// Whether a call may be made now. If so, its outcome must be reported, which [`Node::call`] does.
    pub(super) fn admit(&self) -> Result<(), StoreError> {
        if self.breaker().may_call(self.origin.elapsed()) {
            return Ok(());
        }
        Err(breaker_is_open())
    }

    /// Calls within the deadline, and reports the outcome to the breaker. `read` parses the reply; an unusable reply
    /// is a failure like any other.
    pub(super) async fn call(
        self: &Arc<Self>,
        work: Work<'_>,
        asking: bool,
        read: &mut Read<'_>,
    ) -> Result<(), Refusal> {
        let _turn = self.turn().await?;
        let mut awaited = self.reply(work, asking).await;
        // Another command with its own deadline: with both in one, a distant server would be late whenever it restarts.
        if let Awaited::Reply(reply) = &awaited
            && let Some(by_text) = work.by_text(reply)
        {
            awaited = self.reply(by_text, asking).await;
        }
        self.judge(awaited, read)
    }

    /// Whether callers have their own connection.
    pub(super) fn is_callable_here(&self) -> bool {
        self.of_callers.is_some()
    }

    /// The same in the caller's own runtime, for a request that is alone: it saves a hop to another thread and back.
    ///
    /// A late reply here may be due to a busy runtime, so it is not held against the server: the thread that makes
    /// calls checks whether the server answers. If it does, the reply will be read when the runtime gets to it.
    ///
    /// A caller that is on that thread uses the thread's connection: the other one may be read by another thread.
    pub(super) async fn call_here(
        self: &Arc<Self>,
        io: &Io,
        work: Work<'_>,
        read: &mut Read<'_>,
    ) -> Result<(), Refusal> {
        if io.is_here() {
            return self.call(work, false, read).await;
        }
        let connection = self.of_callers.as_ref().unwrap_or(&self.connection);
        let connection = ConnectionManager::clone(&connection.load());
        let mut reply = pin!(async {
            let reply = send(connection.clone(), work, false).await;
            match work.by_text(&reply) {
                Some(by_text) => send(connection, by_text, false).await,
                None => reply,
            }
        });
        for _ in 0..Node::ROUNDS {
            if let Ok(reply) = tokio::time::timeout(self.deadline, reply.as_mut()).await {
                return self.judge(Awaited::Reply(reply), read);
            }
            let node = Arc::clone(self);
            let asked = async move { node.call(Work::Command(&redis::cmd("PING")), false, &mut |_| Ok(())).await };
            io.run(asked).await.map_err(Refusal::Failed)??;
        }
        // The server answers, but this connection does not, or the runtime never gets to it. Either is no reason to let
        // anybody pass.
        self.renew_of_callers();
        Err(Refusal::Overloaded)
    }

    /// What a reply means; the breaker is informed.
    fn judge(self: &Arc<Self>, awaited: Awaited, read: &mut Read<'_>) -> Result<(), Refusal> {
        let outcome = match awaited {
            Awaited::Late => Err(Refusal::Late(self.deadline)),
            Awaited::Standstill => Err(Refusal::Overloaded),
            Awaited::Reply(Err(error)) => {
                // A primary that became a replica: there is another one now. Redis 6.2 says so only in the text.
                if error.to_string().contains("READONLY") {
                    self.renew();
                }
                Err(Refusal::from(error))
            }
            Awaited::Reply(Ok(value)) => read(value).map_err(Refusal::Failed),
        };
        self.report(&outcome);
        outcome
    }

    /// Waits until a call may be sent.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let turn = match self.turns.try_acquire() {
            Ok(turn) => Some(turn),
            Err(_) => {
                let patience = Overload::patience_for(self.deadline);
                tokio::time::timeout(patience, self.turns.acquire()).await.ok().and_then(Result::ok)
            }
        };
        // It was closed when the request was admitted; calls before it have failed since.
        if self.breaker_state() == BreakerState::Open {
            return Err(Refusal::Failed(breaker_is_open()));
        }
        turn.ok_or(Refusal::Overloaded)
    }

    /// The server's reply, if it arrives within the deadline.
    ///
    /// After one poll the command is with the task that writes it; that task has run when this one is polled again,
    /// and only then the deadline starts. It is measured in steps. A step that ends late does not count: this thread was not
    /// scheduled, and a server on the same machine may not have been scheduled either. At the end of each step the reply may
    /// have arrived unseen, so it is looked for again. A server is late only when it had its whole deadline in steps that
    /// count; if there are too few of those, the wait ends as an overload of this process.
    async fn reply(&self, work: Work<'_>, asking: bool) -> Awaited {
        let mut reply = pin!(send(ConnectionManager::clone(&self.connection.load()), work, asking));
        if let Poll::Ready(reply) = poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await {
            return Awaited::Reply(reply);
        }
        behind_ready_tasks().await;
        let sent_at = Instant::now();
        let step = (self.deadline / 4).clamp(Node::SHORTEST_STEP, Node::LONGEST_STEP);
        let on_time = step + (step / 2).max(Node::TIMER);
        let mut waited = Duration::ZERO;
        let reply = loop {
            let began = Instant::now();
            let arrived = tokio::time::timeout(step, reply.as_mut()).await.ok();
            let took = began.elapsed();
            let arrived = match arrived {
                Some(reply) => Some(reply),
                None => look(reply.as_mut()).await,
            };
            if let Some(reply) = arrived {
                break reply;
            }
            waited += if took <= on_time { step } else { Duration::ZERO };
            if waited >= self.deadline {
                return Awaited::Late;
            }
            if sent_at.elapsed() > self.deadline + Node::STANDSTILL {
                return Awaited::Standstill;
            }
        };
        if reply.is_ok() {
            self.round_trip.note(sent_at.elapsed(), self.origin.elapsed());
        }
        Awaited::Reply(reply)
    }

    fn report(self: &Arc<Self>, outcome: &Result<(), Refusal>) {
        match outcome {
            Err(refusal @ (Refusal::Failed(_) | Refusal::Late(_))) => {
                // What broke one connection has probably broken the other, which would only find out with its next call.
                self.renew_of_callers();
                let has_opened = self.breaker().failed(self.origin.elapsed());
                if let Some(left_out) = has_opened.then(|| self.outages.begin()).flatten() {
                    let error = StoreError::from(refusal.clone());
                    tracing::error!(
                        "the store at {} does not answer; its circuit breaker is open: {error}{left_out}",
                        self.route
                    );
                }
                if self.breaker_state() == BreakerState::Open {
                    self.renew();
                }
            }
            Err(Refusal::Overloaded) => {}
            // A redirection is an answer too.
            _ => {
                let has_closed = self.breaker().succeeded();
                if has_closed && self.outages.end() {
                    tracing::info!("the store at {} answers again; its circuit breaker is closed", self.route);
                }
            }
        }
    }

    /// Reconnects, in the background and one at a time.
    pub(super) fn renew(self: &Arc<Self>) {
        if self.is_renewing.swap(true, Relaxed) {
            return;
        }
        let node = Arc::clone(self);
        tokio::spawn(async move {
            let known = node.primary();
            match node.route.find(known.as_ref()).await {
                Ok(found) => {
                    node.replace(found, known.as_ref());
                    node.renew_of_callers();
                }
                Err(error) => {
                    if let Some(left_out) = node.outages.attempt() {
                        tracing::warn!("cannot reach the store at {} yet: {error}{left_out}", node.route);
                    }
                }
            }
            node.is_renewing.store(false, Relaxed);
        });
    }

    /// Follows a failover from one primary to another. The old one is left at once: its connection is replaced before the
    /// new one is checked, so that no call goes to a server that is no longer the primary.
    pub(super) fn move_to(self: &Arc<Self>, primary: Primary, from: &Primary) {
        let Some(Ok(connection)) = self.sentinels().map(|sentinels| sentinels.lazy(&primary)) else { return };
        tracing::warn!("failover: {} is now at {primary}, no longer at {from}", self.route);
        self.replace(Found { connection, primary: Some(primary) }, Some(from));
        self.renew();
    }

    /// Replaces the connection, unless the place has changed since it was looked up.
    fn replace(&self, found: Found, known: Option<&Primary>) {
        let mut primary = self.primary.lock().unwrap_or_else(PoisonError::into_inner);
        if primary.as_ref() == known {
            self.connection.store(Arc::new(found.connection));
            *primary = found.primary;
        }
    }

    fn renew_of_callers(&self) {
        if let (Some(connection), Some(renewed)) = (&self.of_callers, self.route.lazy()) {
            connection.store(Arc::new(renewed));
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn breaker_is_open() -> StoreError {
    StoreError::unavailable("the circuit breaker is open after repeated failures")
}

/// Lets the tasks run that are ready now. `yield_now` would also ask the system for events first, which costs as much as to
/// send a small command.
async fn behind_ready_tasks() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The reply, if it has arrived: other tasks of this thread may have to run first, to read it.
async fn look<T>(mut reply: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    const LOOKS: usize = 3;
    for _ in 0..LOOKS {
        yield_now().await;
        if let Poll::Ready(reply) = poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await {
            return Some(reply);
        }
    }
    None
}

async fn send(mut connection: ConnectionManager, work: Work<'_>, asking: bool) -> Result<Value, RedisError> {
    match work {
        Work::Command(command) => query(&mut connection, command, asking).await,
        Work::Script(script, call) => query(&mut connection, &script.evalsha(call), asking).await,
        Work::Text(script, call) => query(&mut connection, &script.eval(call), asking).await,
    }
}

async fn query(connection: &mut ConnectionManager, command: &Cmd, asking: bool) -> Result<Value, RedisError> {
    if !asking {
        return command.query_async(connection).await;
    }
    let (value,) = redis::pipe().cmd("ASKING").ignore().add_command(command.clone()).query_async(connection).await?;
    Ok(value)
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Refusal {
        match (error.code(), error.redirect_node()) {
            (Some("MOVED"), Some((address, _))) => Refusal::Moved(address.to_string()),
            (Some("ASK"), Some((address, _))) => Refusal::Ask(address.to_string()),
            (Some("TRYAGAIN"), _) => Refusal::TryAgain,
            (Some("TOLLKEEPERTIME"), _) => {
                let now = error.detail().and_then(|now| now.trim().parse().ok());
                Refusal::OtherTime(Timestamp::from_micros(now.unwrap_or_default()))
            }
            _ => match full::new_keys(&error) {
                Some(keys) => Refusal::Full(keys),
                None => Refusal::Failed(StoreError::unavailable(error.to_string())),
            },
        }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> StoreError {
        match refusal {
            Refusal::Failed(error) => error,
            Refusal::Moved(_) | Refusal::Ask(_) => {
                StoreError::unavailable("its hash slots move faster than they can be followed")
            }
            Refusal::TryAgain => StoreError::unavailable("the keys of a request are being migrated to another node"),
            Refusal::Overloaded => Overloaded::new().into(),
            Refusal::Full(_) => StoreError::unavailable(full::REASON),
            Refusal::OtherTime(_) => StoreError::unavailable("its clock jumps from one calendar window to another"),
            Refusal::Late(deadline) => StoreError::unavailable(format!("no answer within {deadline:?}")),
        }
    }
}
