//! The HTTP front: decisions for callers and proxies, and the admin part.
//!
//! The accept loop is our own so that limits hold before any request is read: how many connections there are, how
//! long one may stall, how large a head may be. What a handler sees has passed all of them.

mod admin;
mod authorize;
mod body;
mod check;
mod keys;
mod observe;
mod pages;
mod problem;
mod stall;

pub(crate) use super::{Admin, Service};
pub(crate) use problem::Problem;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tracing::{debug, error, info, warn};

use stall::Stalling;

/// The names of all routes, for metrics and for suggestions.
pub(crate) const ROUTES: [&str; 10] = [
    "/",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/readyz",
    "/v1/authorize",
    "/v1/check",
    "/v1/keys",
    "/v1/release",
    "/v1/rules",
];

/// What a client may take of us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at the same time; further ones wait in the kernel's queue.
    connections: usize,
    /// How long a connection may be idle, stall, or take for the head of a request.
    idle: Duration,
    /// How long a request may take to arrive.
    request: Duration,
    /// The head of a request in bytes.
    head: usize,
    /// Requests at the same time on one HTTP/2 connection.
    streams: u32,
    /// How long requests under way may take when the service stops.
    drain: Duration,
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

/// What handlers share.
#[derive(Debug)]
struct Front {
    service: Arc<Service>,
    limits: Limits,
}

/// The other end of the connection that a request came on.
#[derive(Clone, Copy, Debug)]
struct Peer(IpAddr);

/// Serves until `shutdown`, then finishes what is under way.
pub(crate) async fn run(
    listener: TcpListener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    run_within(Limits::default(), listener, service, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: TcpListener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let router = router(Arc::new(Front { service, limits }));
    let builder = Arc::new(protocol(limits));
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
    info!("the HTTP front has stopped");
    Ok(())
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

/// HTTP/1.1, and HTTP/2 for those who begin with it.
fn protocol(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.head)
        // A client that has said everything may close its half and still wants the answer.
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.head as u32)
        .max_concurrent_streams(limits.streams);
    builder
}

fn router(front: Arc<Front>) -> Router {
    let description = pages::Description::new(&front.service);
    let admin = Router::new()
        .route("/", get(pages::index))
        .route("/metrics", get(pages::metrics))
        .route("/openapi.json", get(move || description.answer()))
        .route("/v1/keys", get(keys::show).delete(keys::reset))
        .route("/v1/rules", get(keys::rules))
        .route_layer(from_fn_with_state(front.clone(), admin::require));
    Router::new()
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/v1/check", post(check::check))
        .route("/v1/release", post(check::release))
        .route("/v1/authorize", any(authorize::authorize))
        .route("/v1/authorize/", any(authorize::authorize))
        .route("/v1/authorize/{*path}", any(authorize::authorize))
        .merge(admin)
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(from_fn(observe::survive))
        .layer(from_fn_with_state(front.clone(), observe::count))
        .with_state(front)
}

#[cfg(test)]
mod tests;
