//! Accepts connections for every front, with or without TLS.
//!
//! The accept loop is our own so that limits apply before any request is read: the number of connections, how long
//! one may stall or take for a handshake, how large a head may be.

mod heads;
mod stall;
#[cfg(target_os = "linux")]
mod turns;
mod visitors;
mod workers;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use super::stopped::Stopped;
use crate::tls::{self, Acceptor};
use heads::Heads;
pub(crate) use stall::{Busy, Stalling, UnderWay, Unread};
pub(crate) use visitors::{HeldBytes, InFlight, MostConnections, Requests, Visitors};
pub(crate) use workers::Workers;

/// The limits of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at the same time; further ones wait in the kernel's queue.
    pub(crate) connections: usize,
    /// Those of one address; more are closed at once.
    pub(crate) connections_per_address: usize,
    /// How long a connection may be idle, stall, or take for the head of a request.
    pub(crate) idle: Duration,
    /// How long an answer may wait for the client to read it, or the next piece of it.
    pub(crate) unread: Duration,
    /// How long a TLS handshake may take.
    pub(crate) handshake: Duration,
    /// How long a request may take to arrive.
    pub(crate) request: Duration,
    /// The head of a request in bytes.
    pub(crate) head: usize,
    /// Requests at the same time on one HTTP/2 connection.
    pub(crate) streams: u32,
    /// How many of them are answered before other connections have their turn.
    pub(crate) at_once: u32,
    /// How long requests in flight may take when the service stops.
    pub(crate) drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            connections_per_address: 10_000,
            idle: Duration::from_secs(30),
            unread: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            request: Duration::from_secs(10),
            head: 64 * 1024,
            streams: 256,
            at_once: 16,
            drain: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// As usual, with as many connections as this listener takes.
    pub(crate) fn of(listener: &Listener) -> Limits {
        let MostConnections { all, per_address } = listener.most;
        Limits { connections: all, connections_per_address: per_address, ..Limits::default() }
    }
}

/// Listens with a queue that a burst of new connections does not overflow: a client whose connection is dropped there
/// retries a whole second later.
pub(crate) async fn listen(address: &str) -> std::io::Result<TcpListener> {
    const BACKLOG: u32 = 4_096;
    let mut refused = std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
    for address in addresses(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// The addresses that a text means, the best first. `:8080` is that port on every address of this machine: over IPv6,
/// which accepts IPv4 as well, or over IPv4 alone where there is no IPv6.
async fn addresses(text: &str) -> std::io::Result<Vec<SocketAddr>> {
    match text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        Some(port) => Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]),
        None => Ok(tokio::net::lookup_host(text).await?.collect()),
    }
}

/// A listening socket, and how its connections start.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) tcp: TcpListener,
    /// Without it, connections are not encrypted.
    pub(crate) tls: Option<Acceptor>,
    pub(crate) most: MostConnections,
    /// Who serves its connections: these threads, or else the runtime that accepts them.
    pub(crate) workers: Option<Arc<Workers>>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Listener {
        Listener { tcp, tls: None, most: MostConnections { all: 10_000, per_address: 10_000 }, workers: None }
    }
}

/// Reads are decrypted; stalling is measured below TLS, where bytes move.
pub(crate) type Stream = tls::Stream<Stalling<TcpStream>>;

/// Signals that the service is stopping.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// How long a stopping service waits for the rest of a request.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

    /// Resolves when it stops.
    pub(crate) async fn begun(&mut self) {
        // An error means that it has.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// The same for a task that asks again and again.
    pub(super) fn watch(&self) -> Stopped {
        Stopped::new(self.0.clone())
    }
}

/// A connection that was accepted within the limit.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    pub(crate) peer: SocketAddr,
    /// The name in the client's certificate, if one was required.
    pub(crate) certified: Option<Arc<str>>,
    /// Allows the client to be silent while requests are in flight.
    pub(crate) busy: Busy,
    /// Where its requests are counted.
    pub(crate) requests: Requests,
    /// Signals the connection to end after the requests in flight.
    pub(crate) watcher: Watcher,
    /// Signals code that waits for the rest of a request.
    pub(crate) stopping: Stopping,
    /// The worker that serves it.
    pub(crate) thread: usize,
}

/// The peer of the connection that a request came on.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) ip: IpAddr,
    /// The name in its certificate.
    pub(super) certified: Option<Arc<str>>,
}

/// A connection, as its requests know it.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) peer: Peer,
    pub(super) reader: Reader,
    pub(super) stopping: Stopping,
    pub(super) visitors: Arc<Visitors>,
}

/// Who reads the answers of a connection.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    requests: Requests,
    busy: Busy,
}

/// A large answer that has not been read yet, until it is dropped.
#[derive(Debug)]
pub(super) struct Owed {
    _bytes: HeldBytes,
    _unread: Unread,
}

impl Reader {
    pub(super) fn new(requests: Requests, busy: Busy) -> Reader {
        Reader { requests, busy }
    }

    /// Keeps an answer of so many bytes until it was read, unless too much waits for this client or for all. A client that
    /// takes longer than it may be idle is cut off.
    pub(super) fn owe(&self, bytes: usize) -> Option<Owed> {
        Some(Owed { _bytes: self.requests.hold(bytes)?, _unread: self.busy.owe() })
    }
}

impl Connected {
    /// Adds it to a request, for handlers behind a router.
    pub(super) fn attach<B>(&self, request: &mut Request<B>) {
        request.extensions_mut().insert(self.peer.clone());
        request.extensions_mut().insert(self.reader.clone());
        request.extensions_mut().insert(self.stopping.clone());
    }
}

/// Why a request is refused whose client has too many in flight.
pub(super) const TOO_MANY_REQUESTS: &str =
    "overloaded: too many requests of this client are in flight; wait for answers before sending more";

/// What HTTP/1 needs and HTTP/2 has in other ways.
///
/// While the service drains, clients are asked to reconnect (`Connection: close`): a connection that is closed just when
/// they send a request would lose it. HTTP/2 has GOAWAY for that. And a status that has no name, as a rule's `deny` may
/// have, gets the name of its class: otherwise hyper calls it `<none>`.
pub(super) fn for_http1<B>(mut response: Response<B>, version: Version, visitors: &Visitors) -> Response<B> {
    if response.status().canonical_reason().is_none() && response.extensions().get::<ReasonPhrase>().is_none() {
        let class = class_of(response.status());
        response.extensions_mut().insert(ReasonPhrase::from_static(class.as_bytes()));
    }
    if version < Version::HTTP_2 && visitors.should_leave() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The name of a status that has none of its own.
pub(super) fn class_of(status: StatusCode) -> &'static str {
    if status.is_client_error() { "Client Error" } else { "Other" }
}

/// Logs why a connection ended.
pub(super) fn log_broken(visitors: &Visitors, peer: SocketAddr, error: &(dyn std::error::Error + 'static)) {
    if is_flood_of_resets(error) {
        visitors.log_reset(peer.ip());
    }
    debug!(%peer, "connection closed: {error}");
}

/// Whether a connection was closed because its client opens streams only to reset them (CVE-2023-44487).
fn is_flood_of_resets(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let text = cause.to_string();
        text.contains("too_many_resets") || text.contains("excessive load")
    })
}

/// Serves connections until `shutdown`, then finishes the requests in flight.
pub(crate) async fn serve<F>(
    limits: Limits,
    visitors: Arc<Visitors>,
    listener: Listener,
    shutdown: impl Future<Output = ()> + Send,
    serve_one: impl Fn(Accepted) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let serve_one: ServeOne = Arc::new(move |accepted| Box::pin(serve_one(accepted)));
    accept_all(limits, visitors, listener, pin!(shutdown), serve_one).await;
}

/// Boxed, so that the accept loop is compiled once and not for every front.
type ServeOne = Arc<dyn Fn(Accepted) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

async fn accept_all(
    limits: Limits,
    visitors: Arc<Visitors>,
    listener: Listener,
    mut shutdown: Pin<&mut (dyn Future<Output = ()> + Send)>,
    serve_one: ServeOne,
) {
    let Listener { tcp: listener, tls, workers, .. } = listener;
    let tls = Arc::new(tls);
    let slots = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let (stop, stopping) = watch::channel(false);
    loop {
        let (stream, peer, slot) = tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                if let Err(panic) = ended {
                    error!("a connection task panicked: {panic}");
                }
                continue;
            }
            accepted = accept(&listener, &slots, limits.connections, &visitors) => accepted,
        };
        // Dropped, so closed: a client with too many learns it at once, and no other client waits behind it.
        let most = MostConnections { all: limits.connections, per_address: limits.connections_per_address };
        let Some(visit) = visitors.admit(peer.ip(), most) else { continue };
        let (serve_one, tls, mut stopping, watcher) =
            (serve_one.clone(), tls.clone(), Stopping(stopping.clone()), graceful.watcher());
        let place = Workers::place(workers.as_deref());
        let (runtime, thread) = (place.runtime().clone(), place.thread());
        // It is registered again by the thread that serves it.
        let Ok(stream) = stream.into_std() else { continue };
        let serving = async move {
            let busy = Busy::new(limits.unread);
            let begun = tokio::select! {
                biased;
                begun = begin(stream, &busy, (*tls).as_ref(), limits) => begun,
                // A connection still in its handshake has no request in flight.
                () = stopping.begun() => Err(std::io::ErrorKind::ConnectionAborted.into()),
            };
            match begun {
                Ok((stream, certified)) => {
                    let requests = visit.requests();
                    serve_one(Accepted { stream, peer, certified, busy, requests, watcher, stopping, thread }).await;
                }
                Err(error) => {
                    visit.count_failed_start(&error);
                    debug!(%peer, "connection closed during its setup: {error}");
                }
            }
            drop((slot, visit, place));
        };
        connections.spawn_on(serving, &runtime);
    }
    drop(listener);
    let _ = stop.send(true);
    if tokio::time::timeout(limits.drain, graceful.shutdown()).await.is_err() {
        warn!("requests were still in flight after {:?} and are aborted", limits.drain);
    }
    connections.shutdown().await;
}

/// The stream to serve, after the TLS handshake if there is one, and the name in the client's certificate.
async fn begin(
    stream: std::net::TcpStream,
    busy: &Busy,
    tls: Option<&Acceptor>,
    limits: Limits,
) -> std::io::Result<(Stream, Option<Arc<str>>)> {
    let mut stream = TcpStream::from_std(stream)?;
    let stalling = |stream| Stalling::new(stream, limits.idle).unless(busy.clone());
    let Some(tls) = tls else { return Ok((Stream::Plain(stalling(stream)), None)) };
    let handshake = async {
        tls.refuse_plain_text(&mut stream).await?;
        tls.accept(stalling(stream)).await
    };
    let stream = tokio::time::timeout(limits.handshake, handshake).await??;
    let certified = tls::client_name(&stream);
    Ok((Stream::Tls(Box::new(stream)), certified))
}

/// The next connection, once there is room for it. Errors of accept are transient: a process without free file
/// descriptors gets one back when a connection ends, and retrying at once would only burn CPU.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    most: usize,
    visitors: &Visitors,
) -> (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit) {
    const PAUSE: Duration = Duration::from_millis(500);
    if slots.available_permits() == 0 {
        visitors.log_full(most);
    }
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are small and complete: waiting to fill a packet only delays them.
                let _ = stream.set_nodelay(true);
                return (stream, peer, slot);
            }
            Err(error) if is_of_one_connection(&error) => {
                debug!("a connection was closed before it was accepted: {error}")
            }
            Err(error) => {
                visitors.log_trouble(&error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The same for one connection, with a timer of its own.
pub(crate) fn for_one<E: Clone>(builder: &auto::Builder<E>) -> auto::Builder<E> {
    let (mut builder, timer) = (builder.clone(), Heads::default());
    builder.http1().timer(timer.clone());
    builder.http2().timer(timer);
    builder
}

/// How much of a response HTTP/2 keeps for a client that does not take it; there may be hundreds on a connection.
const KEPT: usize = 64 * 1024;

/// HTTP/1.1, and HTTP/2 for clients that start with it. Each connection has its own: see [`for_one`].
pub(crate) fn protocol(limits: Limits) -> auto::Builder<TokioExecutor> {
    protocol_on(TokioExecutor::new(), limits)
}

/// The same with another executor.
pub(crate) fn protocol_on<E>(executor: E, limits: Limits) -> auto::Builder<E> {
    let mut builder = auto::Builder::new(executor);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(limits.head)
        // A client may close its sending half and still wait for the response.
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.head as u32)
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(KEPT);
    builder
}

#[cfg(test)]
mod tests;
