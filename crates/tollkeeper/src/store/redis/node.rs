//! One server: a connection that is mended, a deadline for every call, and a breaker.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use redis::aio::ConnectionManager;
use redis::{Cmd, RedisError, Value};

use super::breaker::{Breaker, BreakerState};
use super::route::Route;
use super::script::{Call, Script};
use super::server::ConnectError;
use crate::store::error::StoreError;

/// A server that is called.
pub(super) struct Node {
    route: Route,
    /// Replaced as a whole when it has failed for long: a connection can hang or keep an error forever.
    connection: ArcSwap<ConnectionManager>,
    is_renewing: AtomicBool,
    breaker: Mutex<Breaker>,
    /// What the breaker's times count from.
    origin: Instant,
    deadline: Duration,
}

/// What a node is asked to do.
#[derive(Clone, Copy)]
pub(super) enum Work<'w> {
    /// By its hash, and by its text where the server has forgotten it (restart, failover, flush).
    Script(&'w Script, &'w Call),
    Command(&'w Cmd),
}

/// Why a node did not do it.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// The slot belongs to the node at this address, and from now on (`MOVED`).
    Moved(String),
    /// For this once the node at this address has to be asked (`ASK`): the slot is on its way there.
    Ask(String),
    /// Some of the keys have moved and some have not; all will soon have.
    TryAgain,
    /// Anything else.
    Failed(StoreError),
}

impl Node {
    /// With a connection that is made when it is first used.
    pub(super) fn lazy(route: Route, client: &redis::Client, deadline: Duration) -> Result<Node, ConnectError> {
        let connection = super::server::lazy(client)?;
        Ok(Node::new(route, connection, deadline))
    }

    pub(super) fn new(route: Route, connection: ConnectionManager, deadline: Duration) -> Node {
        Node {
            route,
            connection: ArcSwap::from_pointee(connection),
            is_renewing: AtomicBool::new(false),
            breaker: Mutex::new(Breaker::new()),
            origin: Instant::now(),
            deadline,
        }
    }

    /// A connection for itself, that works now.
    pub(super) async fn open(&self) -> Result<ConnectionManager, ConnectError> {
        self.route.open().await
    }

    /// Where it is.
    pub(super) fn host(&self) -> &str {
        self.route.host()
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        self.breaker().state()
    }

    /// Whether a call may go out now. If so, its outcome must be reported, which [`Node::call`] does.
    pub(super) fn admit(&self) -> Result<(), StoreError> {
        if self.breaker().may_call(self.origin.elapsed()) {
            return Ok(());
        }
        Err(StoreError::unavailable("the breaker is open after repeated failures"))
    }

    /// Within the deadline, and the breaker learns how it went. `read` turns the answer into what is wanted; an answer
    /// that it cannot use is a failure like any other.
    pub(super) async fn call<T>(
        self: &Arc<Self>,
        work: Work<'_>,
        asking: bool,
        read: impl FnOnce(Value) -> Result<T, StoreError>,
    ) -> Result<T, Refusal> {
        let answer = tokio::time::timeout(self.deadline, self.send(work, asking)).await;
        let outcome = match answer {
            Err(_) => Err(Refusal::Failed(StoreError::unavailable(format!("no answer within {:?}", self.deadline)))),
            Ok(Err(error)) => {
                // A primary that became a replica: there is another one now. Redis 6.2 says so only in the text.
                if error.to_string().contains("READONLY") {
                    self.renew();
                }
                Err(Refusal::from(error))
            }
            Ok(Ok(value)) => read(value).map_err(Refusal::Failed),
        };
        self.report(&outcome);
        outcome
    }

    async fn send(&self, work: Work<'_>, asking: bool) -> Result<Value, RedisError> {
        let mut connection = ConnectionManager::clone(&self.connection.load());
        match work {
            Work::Command(command) => query(&mut connection, command, asking).await,
            Work::Script(script, call) => match query(&mut connection, &script.evalsha(call), asking).await {
                Err(error) if error.code() == Some("NOSCRIPT") => {
                    query(&mut connection, &script.eval(call), asking).await
                }
                other => other,
            },
        }
    }

    fn report<T>(self: &Arc<Self>, outcome: &Result<T, Refusal>) {
        match outcome {
            Err(Refusal::Failed(error)) => {
                if self.breaker().failed(self.origin.elapsed()) {
                    tracing::error!("the store at {} does not answer; its breaker is open: {error}", self.route);
                }
                if self.breaker_state() == BreakerState::Open {
                    self.renew();
                }
            }
            // A redirection is an answer.
            _ => {
                if self.breaker().succeeded() {
                    tracing::info!("the store at {} answers again; its breaker is closed", self.route);
                }
            }
        }
    }

    /// Reconnects, in the background and one at a time.
    fn renew(self: &Arc<Self>) {
        if self.is_renewing.swap(true, Relaxed) {
            return;
        }
        let node = Arc::clone(self);
        tokio::spawn(async move {
            match node.route.open().await {
                Ok(connection) => node.connection.store(Arc::new(connection)),
                Err(error) => tracing::warn!("cannot reach the store at {} yet: {error}", node.route),
            }
            node.is_renewing.store(false, Relaxed);
        });
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
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
            _ => Refusal::Failed(StoreError::unavailable(error.to_string())),
        }
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> StoreError {
        match refusal {
            Refusal::Failed(error) => error,
            Refusal::Moved(_) | Refusal::Ask(_) => StoreError::unavailable("its slots move faster than they are found"),
            Refusal::TryAgain => StoreError::unavailable("the keys of a request are on their way to another node"),
        }
    }
}
