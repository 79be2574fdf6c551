//! Connections that speak HTTP, which gRPC does too.
//!
//! The accept loop is our own so that limits hold before any request is read: how many connections there are, how
//! long one may stall, how large a head may be. What a handler sees has passed all of them.

mod stall;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tracing::{debug, error, info, warn};

use stall::Stalling;

/// What a client may take of us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at the same time; further ones wait in the kernel's queue.
    pub(super) connections: usize,
    /// How long a connection may be idle, stall, or take for the head of a request.
    pub(super) idle: Duration,
    /// How long a request may take to arrive.
    pub(super) request: Duration,
    /// The head of a request in bytes.
    pub(super) head: usize,
    /// Requests at the same time on one HTTP/2 connection.
    pub(super) streams: u32,
    /// How long requests under way may take when the service stops.
    pub(super) drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            idle: Duration::from_secs(30),
            request: Duration::from_secs(10),
            head: 64 * 1024,
            streams: 256,
            drain: Duration::from_secs(10),
        }
    }
}

/// The other end of the connection that a request came on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// Serves until `shutdown`, then finishes what is under way. `front` is its name in the log.
pub(super) async fn serve(
    front: &str,
    limits: Limits,
    protocol: auto::Builder<TokioExecutor>,
    router: Router,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let builder = Arc::new(protocol);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                if let Err(panic) = ended {
                    error!("a connection ended badly: {panic}");
                }
                continue;
            }
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, peer, slot) = accepted;
        let (builder, router, watcher) = (builder.clone(), router.clone(), graceful.watcher());
        connections.spawn(async move {
            let requests = router.map_request(move |mut request: http::Request<Incoming>| {
                request.extensions_mut().insert(Peer(peer.ip()));
                request.map(Body::new)
            });
            let io = TokioIo::new(Stalling::new(stream, limits.idle));
            let connection = builder.serve_connection(io, TowerToHyperService::new(requests)).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                debug!(%peer, "connection closed: {error}");
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        warn!("requests were still under way after {:?} and are cut off", limits.drain);
    }
    connections.shutdown().await;
    info!("the {front} front has stopped");
}

/// The next connection, once there is room for it. Trouble to accept passes: a process out of file descriptors has
/// some again when a connection ends, and trying at once would only keep a processor busy.
pub(super) async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit) {
    const PAUSE: Duration = Duration::from_millis(500);
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are small and whole: waiting to fill a packet only delays them.
                let _ = stream.set_nodelay(true);
                return (stream, peer, slot);
            }
            Err(error) if is_of_one_connection(&error) => {
                debug!("a connection was gone before it was accepted: {error}")
            }
            Err(error) => {
                warn!("cannot accept connections right now: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
