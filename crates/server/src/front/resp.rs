//! The Redis protocol front: `CL.THROTTLE` as redis-cell answers it, `TOLLKEEPER.CHECK` over the rules, and those of
//! the usual commands that ordinary clients need to connect.
//!
//! A connection is one task. It takes the part of a pipeline that has arrived, has it decided together, answers in
//! order, and reads on. So a client can make us hold at most one batch of commands and their answers.

mod about;
mod action;
mod check;
mod command;
mod connection;
mod group;
mod inline;
mod names;
mod reply;
mod request;
mod session;
mod shared;
mod throttle;

pub(crate) use names::NAMES as COMMANDS;
pub(crate) use session::Password;
pub(crate) use throttle::rule as throttle_rule;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::watch;
use tollkeeper::Store;
use tracing::{debug, info};

use super::connections::{self, Accepted, Listener};
use crate::service::Service;
use connection::Connection;
use shared::{Limits, Shared};
use throttle::Quotas;

/// Serves until `shutdown`, then answers the commands in flight.
pub(crate) async fn run(
    listener: Listener,
    service: Arc<Service>,
    password: Option<Password>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let limits = Limits {
        connections: listener.most.all,
        connections_per_address: listener.most.per_address,
        ..Limits::default()
    };
    run_within(limits, listener, service, password, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: impl Into<Listener>,
    service: Arc<Service>,
    password: Option<Password>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let visitors = service.visitors(&service.metrics.connections.resp);
    let decides_here = matches!(service.limiter.store(), Store::Memory(_));
    let (quotas, connections) = (Quotas::default(), AtomicU64::default());
    let shared = Arc::new(Shared { service, limits, password, decides_here, quotas, connections });
    let (stop, stopping) = watch::channel(false);
    let shutdown = async move {
        shutdown.await;
        let _ = stop.send(true);
    };
    let serve_one = move |Accepted { stream, peer, watcher, .. }| {
        let number = shared.connections.fetch_add(1, Relaxed) + 1;
        let connection = Connection::new(shared.clone(), stream, peer.ip(), number, stopping.clone());
        async move {
            if let Err(error) = connection.serve().await {
                debug!(%peer, "connection closed: {error}");
            }
            // The front waits until every watcher is dropped.
            drop(watcher);
        }
    };
    let accepting = connections::Limits {
        connections: limits.connections,
        connections_per_address: limits.connections_per_address,
        idle: limits.idle,
        handshake: limits.stall,
        drain: limits.drain,
        ..Default::default()
    };
    connections::serve(accepting, visitors, listener.into(), shutdown, serve_one).await;
    info!("the RESP front has stopped");
    Ok(())
}

/// Bytes of a hostile client: commands are the same however their bytes arrive.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let (mut at, mut words) = (0, Vec::new());
    while let Ok(request::Parsed::Command(taken)) = request::parse(&bytes[at..], &mut words) {
        assert!(taken > 0 && taken <= request::MAX_COMMAND, "{taken} bytes for a command");
        assert!(words.len() <= request::MAX_WORDS, "{} words", words.len());
        let before = request::parse(&bytes[at..at + taken - 1], &mut words);
        assert!(matches!(before, Ok(request::Parsed::Incomplete)), "a command without its last byte is {before:?}");
        at += taken;
    }
}

#[cfg(test)]
mod tests;
