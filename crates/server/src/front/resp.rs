//! The Redis protocol front: `CL.THROTTLE` as redis-cell answers it, `TOLLKEEPER.CHECK` over the rules, and as much of the
//! usual commands as ordinary clients need to connect.
//!
//! A connection is one task. It takes what has arrived of a pipeline, has it decided together, and answers in order;
//! then it reads on. So what a client can make us hold is one batch of commands and their answers.

mod about;
mod check;
mod command;
mod connection;
mod inline;
mod reply;
mod request;
mod session;
mod throttle;

pub(crate) use command::NAMES as COMMANDS;
pub(crate) use session::Password;
pub(crate) use throttle::rule as throttle_rule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info};

use super::connections::{self, Accepted, Listener};
use crate::service::Service;
use connection::Connection;
use throttle::Quotas;

/// What a client may take of us; what a command may take is in [`request`].
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at the same time; further ones wait in the kernel's queue.
    connections: usize,
    /// How long a connection may be silent between commands. Pools keep theirs for minutes.
    idle: Duration,
    /// How long a command may take to arrive, or an answer to be read.
    stall: Duration,
    /// Commands of a pipeline that are decided together.
    depth: usize,
    /// How long commands under way may take when the service stops.
    drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            idle: Duration::from_secs(600),
            stall: Duration::from_secs(10),
            depth: 256,
            drain: Duration::from_secs(10),
        }
    }
}

/// What connections share.
#[derive(Debug)]
struct Front {
    service: Arc<Service>,
    limits: Limits,
    /// What commands need, if they need one.
    password: Option<Password>,
    /// A rule for each quota that a command has named.
    quotas: Quotas,
    /// How many connections there have been.
    connections: AtomicU64,
}

/// Serves until `shutdown`, then answers what is under way.
pub(crate) async fn run(
    listener: Listener,
    service: Arc<Service>,
    password: Option<Password>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    run_within(Limits::default(), listener, service, password, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: impl Into<Listener>,
    service: Arc<Service>,
    password: Option<Password>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let front =
        Arc::new(Front { service, limits, password, quotas: Quotas::default(), connections: AtomicU64::default() });
    let (stop, stopping) = watch::channel(false);
    let shutdown = async move {
        shutdown.await;
        let _ = stop.send(true);
    };
    let serve_one = move |Accepted { stream, peer, watcher, .. }| {
        let number = front.connections.fetch_add(1, Relaxed) + 1;
        let connection = Connection::new(front.clone(), stream, number, stopping.clone());
        async move {
            if let Err(error) = connection.serve().await {
                debug!(%peer, "connection closed: {error}");
            }
            // As long as it is there the front is not done.
            drop(watcher);
        }
    };
    let accepting = connections::Limits {
        connections: limits.connections,
        idle: limits.idle,
        handshake: limits.stall,
        drain: limits.drain,
        ..Default::default()
    };
    connections::serve(accepting, listener.into(), shutdown, serve_one).await;
    info!("the RESP front has stopped");
    Ok(())
}

#[cfg(test)]
mod tests;
