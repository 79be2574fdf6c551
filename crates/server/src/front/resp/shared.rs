//! What the connections of this front share, and the limits of each.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::session::Password;
use super::throttle::Quotas;
use crate::service::Service;

/// The limits of clients; those of a command are in [`request`](super::request).
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at the same time; further ones wait in the kernel's queue.
    pub(super) connections: usize,
    /// Those of one address.
    pub(super) connections_per_address: usize,
    /// How long a connection may be idle between commands. Pools keep theirs for minutes.
    pub(super) idle: Duration,
    /// How long a command may take to arrive, or an answer to be read.
    pub(super) stall: Duration,
    /// Commands of a pipeline that are decided together.
    pub(super) depth: usize,
    /// How long commands in flight may take when the service stops.
    pub(super) drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            connections_per_address: 10_000,
            idle: Duration::from_secs(600),
            stall: Duration::from_secs(10),
            depth: 256,
            drain: Duration::from_secs(10),
        }
    }
}

/// What connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) service: Arc<Service>,
    pub(super) limits: Limits,
    /// The password, if one is required.
    pub(super) password: Option<Password>,
    /// Whether the store is in this process: then no command waits for an answer.
    pub(super) decides_here: bool,
    /// The cached terms of each quota that commands have used.
    pub(super) quotas: Quotas,
    /// How many connections there have been.
    pub(super) connections: AtomicU64,
}
