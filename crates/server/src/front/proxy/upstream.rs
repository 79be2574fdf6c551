//! The server behind the proxy: its address, pooled connections, and its failures as problems.

mod address;
mod chunks;
mod connection;
mod exchange;
mod pool;
mod socket;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use http::header::UPGRADE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};
use tollkeeper::http::Problem;
use tower::BoxError;
use tracing::warn;

use super::upload::{Pace, Upload, UploadFailure, UploadState};
use crate::metrics::{Proxied, UpstreamError};
use crate::tls::{Connector, Renewable};
pub(crate) use address::{Address, parse_upstream};
use connection::{Connection, Purpose, Unanswered};
pub(super) use exchange::Left;
pub(super) use pool::Taken;
use pool::{Pool, Stakes};
use socket::{Control, Socket};

/// How long the upstream may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// To accept a connection, and again for a TLS handshake.
    pub(crate) connect: Duration,
    /// From the last piece of the request that it took to the head of its response.
    pub(crate) response: Duration,
    /// Between two pieces of a body, in either direction, and between two bytes of a WebSocket.
    pub(crate) idle: Duration,
    /// How slowly a client may send.
    pub(crate) upload: Pace,
}

/// The server behind the proxy.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: Address,
    /// As the `Host` of requests that name none.
    host: HeaderValue,
    /// What a connection is opened to.
    uri: Uri,
    connector: Connector,
    pool: Arc<Pool>,
    pub(crate) timeouts: Timeouts,
    /// When a failure was last logged. Clients can cause any number, so only one a second is logged.
    logged: Mutex<Option<Instant>>,
}

/// A response, and the connection that its body comes on, unless that runs by itself.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) response: Response<Incoming>,
    pub(super) connection: Option<Taken>,
}

/// Which connections a request may be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// One that is idle, or else a new one.
    Idle(Stakes),
    New,
}

impl Upstream {
    /// `tls` is for an https:// address. `threads` is how many serve connections.
    pub(crate) fn new(
        address: Address,
        tls: Option<Arc<Renewable<ClientConfig>>>,
        timeouts: Timeouts,
        threads: usize,
    ) -> Upstream {
        let connector = Connector::new(tls.zip(address.certified.clone()), timeouts.connect);
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(address.scheme());
        parts.authority = Some(address.authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Upstream {
            host: HeaderValue::from_str(address.authority.as_str()).expect("an authority is plain text"),
            uri: Uri::from_parts(parts).expect("all three parts are there"),
            address,
            connector,
            pool: Pool::new(threads),
            timeouts,
            logged: Mutex::new(None),
        }
    }

    /// The `Host` of requests that name none.
    pub(super) fn host(&self) -> HeaderValue {
        self.host.clone()
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The response, once its head is there. `thread` is the one that serves the client's connection.
    pub(super) async fn send(
        &self,
        thread: usize,
        request: Request<Upload>,
        counted: &Proxied,
    ) -> Result<Answered, Problem> {
        let (began, again) = (Instant::now(), repetition(&request));
        let choice = Choice::Idle(if again.is_some() { Stakes::Low } else { Stakes::High });
        let answered = match (self.exchange(thread, request, choice, began).await, again) {
            (Err(failure), Some(again)) if failure.is_lost() => {
                Box::pin(self.exchange(thread, again, Choice::New, Instant::now())).await
            }
            (outcome, _) => outcome,
        };
        match &answered {
            Ok(answered) => counted.answered(answered.response.status().as_u16(), began.elapsed()),
            Err(failure) => failure.error().into_iter().for_each(|error| counted.failed(error)),
        }
        answered.map_err(|failure| self.problem(failure))
    }

    async fn exchange(
        &self,
        thread: usize,
        mut request: Request<Upload>,
        choice: Choice,
        began: Instant,
    ) -> Result<Answered, Failure> {
        let upload = request.body().state();
        let outcome = loop {
            let mut taken = match self.connection(thread, choice, began).await {
                Ok(taken) => taken,
                Err(failure) => break Err(failure),
            };
            let purpose = if request.headers().contains_key(UPGRADE) { Purpose::Upgrade } else { Purpose::Http };
            match self.answer(&mut taken, request, purpose, upload.as_deref(), began).await {
                Ok(response) => break Ok((response, taken)),
                // It was closed before anything was sent, so any request may be sent again.
                Err(Failure::Unanswered(Unanswered { unsent: Some(unsent), .. })) if !taken.is_new() => {
                    request = *unsent;
                }
                Err(failure) => break Err(failure),
            }
        };
        let failure = |failure| upload.as_ref().and_then(|upload| upload.failure()).map_or(failure, Failure::Upload);
        let (response, taken) = outcome.map_err(failure)?;
        // A client may send for longer than it reads: the rest of its body has to go on even while the response waits.
        if upload.is_some_and(|upload| !upload.has_ended()) {
            taken.detach();
            return Ok(Answered { response, connection: None });
        }
        Ok(Answered { response, connection: Some(taken) })
    }

    /// Sends a request and waits for the head of its response.
    async fn answer(
        &self,
        taken: &mut Taken,
        request: Request<Upload>,
        purpose: Purpose,
        upload: Option<&UploadState>,
        began: Instant,
    ) -> Result<Response<Incoming>, Failure> {
        let Some(connection) = taken.connection() else { return Err(Failure::Late) };
        let failed = |error| Failure::Unanswered(Unanswered { error, unsent: None });
        connection.let_hyper_speak(purpose).await.map_err(failed)?;
        let Some(answer) = connection.send(request) else { return Err(Failure::Late) };
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            // An upstream that still reads the client's body is not late. Asked before it reads: interim responses without end would
            // leave no time for the alarm.
            let due = upload.map_or(began, UploadState::moved) + self.timeouts.response;
            if Instant::now() >= due {
                return Poll::Ready(Err(Failure::Late));
            }
            connection.work(cx);
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer.map_err(Failure::Unanswered));
            }
            ready!(connection.poll_late(due, cx));
            Poll::Ready(Err(Failure::Late))
        })
        .await
    }

    /// Sends a request without a body that is safe to repeat, as bytes, and returns the response once its head is there. Quicker
    /// than [`Upstream::send`], and without trailers and upgrades. The headers of the response are put into `spare`, which is empty.
    pub(super) async fn fetch(
        &self,
        thread: usize,
        request: &[u8],
        spare: &mut HeaderMap,
        counted: &Proxied,
    ) -> Result<(Response<()>, Taken), Problem> {
        let began = Instant::now();
        let fetched = match self.fetch_once(thread, request, spare, Choice::Idle(Stakes::Low), began).await {
            Err(failure) if failure.is_lost() => {
                Box::pin(self.fetch_once(thread, request, spare, Choice::New, Instant::now())).await
            }
            outcome => outcome,
        };
        match &fetched {
            Ok((response, _)) => counted.answered(response.status().as_u16(), began.elapsed()),
            Err(failure) => failure.error().into_iter().for_each(|error| counted.failed(error)),
        }
        fetched.map_err(|failure| self.problem(failure))
    }

    async fn fetch_once(
        &self,
        thread: usize,
        mut request: &[u8],
        spare: &mut HeaderMap,
        choice: Choice,
        began: Instant,
    ) -> Result<(Response<()>, Taken), Failure> {
        let mut taken = self.connection(thread, choice, began).await?;
        let Some(connection) = taken.connection() else { return Err(Failure::Late) };
        let due = began + self.timeouts.response;
        let response = poll_fn(|cx| match connection.poll_exchange(&mut request, spare, cx) {
            Poll::Pending => connection.poll_late(due, cx).map(|()| Err(Failure::Late)),
            Poll::Ready(response) => Poll::Ready(response.map_err(Failure::Broken)),
        });
        Ok((response.await?, taken))
    }

    /// A connection for a request that began then.
    async fn connection(&self, thread: usize, choice: Choice, began: Instant) -> Result<Taken, Failure> {
        let idle = match choice {
            Choice::Idle(stakes) => poll_fn(|cx| Poll::Ready(self.pool.take(thread, stakes, cx))).await,
            Choice::New => None,
        };
        if let Some(taken) = idle {
            return Ok(taken);
        }
        // Boxed, because it is large, and seldom needed. To look an address up has no limit of its own.
        match timeout_at(began + self.timeouts.response, Box::pin(self.connect())).await {
            Ok(Ok(connection)) => Ok(self.pool.own(thread, connection)),
            Ok(Err(error)) => Err(Failure::Connect(error)),
            Err(_) => Err(Failure::Late),
        }
    }

    async fn connect(&self) -> Result<Connection, BoxError> {
        let control = Arc::<Control>::default();
        let stream = self.connector.open(self.uri.clone(), |tcp| Socket::new(tcp, control.clone())).await?;
        Ok(Connection::new(stream, control))
    }

    /// The client's response, without addresses: they are only in the log.
    fn problem(&self, failure: Failure) -> Problem {
        let Timeouts { connect, response, .. } = self.timeouts;
        match failure {
            Failure::Upload(UploadFailure::Stalled(limit)) => {
                let detail = format!("no more of the body arrived within {limit:?}; send it faster");
                Problem::new(StatusCode::REQUEST_TIMEOUT, detail).closing()
            }
            Failure::Upload(UploadFailure::Slow(Pace { rate, longest })) => {
                let detail = format!(
                    "the body arrived at less than {rate} bytes per second, or took longer than {longest:?}; send it faster"
                );
                Problem::new(StatusCode::REQUEST_TIMEOUT, detail).closing()
            }
            Failure::Upload(UploadFailure::Broken) => {
                let detail = "the body ended early or its framing is invalid; the request was not completed";
                Problem::new(StatusCode::BAD_REQUEST, detail).closing()
            }
            Failure::Late => {
                let detail = format!("the upstream did not answer within {response:?}");
                self.log(&detail);
                Problem::new(StatusCode::GATEWAY_TIMEOUT, detail)
            }
            Failure::Connect(error) => {
                let cause = root(&*error);
                self.log(&format!("no connection: {cause}"));
                if let Some(detail) = tls_detail(cause) {
                    return Problem::new(StatusCode::BAD_GATEWAY, detail);
                }
                if io_kind(cause) == Some(io::ErrorKind::TimedOut) {
                    let detail = format!("the upstream did not accept a connection within {connect:?}");
                    return Problem::new(StatusCode::GATEWAY_TIMEOUT, detail);
                }
                Problem::new(StatusCode::BAD_GATEWAY, "the upstream is unreachable")
            }
            Failure::Unanswered(Unanswered { error, .. }) => self.unanswered(root(&error)),
            Failure::Broken(error) => self.unanswered(&error),
        }
    }

    fn unanswered(&self, cause: &(dyn std::error::Error + 'static)) -> Problem {
        self.log(&format!("no response: {cause}"));
        let detail = tls_detail(cause).unwrap_or("the upstream sent an invalid response");
        Problem::new(StatusCode::BAD_GATEWAY, detail)
    }

    fn log(&self, failure: &str) {
        const PAUSE: Duration = Duration::from_secs(1);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() >= PAUSE) {
            *logged = Some(Instant::now());
            warn!("upstream {}: {failure}", self.address.authority);
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
enum Failure {
    /// Caused by the client.
    Upload(UploadFailure),
    /// The upstream took the request and never answered.
    Late,
    /// No connection could be opened.
    Connect(BoxError),
    /// The connection failed, as hyper says.
    Unanswered(Unanswered),
    /// The connection failed, or its answer is invalid.
    Broken(io::Error),
}

impl Failure {
    /// What the upstream did wrong, if it is not the client's fault.
    fn error(&self) -> Option<UpstreamError> {
        let cause = match self {
            Failure::Upload(_) => return None,
            Failure::Late => return Some(UpstreamError::Timeout),
            Failure::Connect(error) => root(&**error),
            Failure::Unanswered(Unanswered { error, .. }) => root(error),
            Failure::Broken(error) => error,
        };
        Some(match (self, io_kind(cause)) {
            _ if tls_detail(cause).is_some() => UpstreamError::Tls,
            (Failure::Connect(_), Some(io::ErrorKind::TimedOut)) => UpstreamError::ConnectTimeout,
            (Failure::Connect(_), _) => UpstreamError::Unreachable,
            _ => UpstreamError::InvalidResponse,
        })
    }

    /// Whether the connection ended before any response, as happens when the upstream has just closed it.
    fn is_lost(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        // The last is an end of TLS without close_notify, from servers that just close.
        let is_reset = |kind| matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof);
        match self {
            Failure::Unanswered(Unanswered { error, .. }) => {
                error.is_incomplete_message() || error.is_canceled() || io_kind(root(error)).is_some_and(is_reset)
            }
            Failure::Broken(error) => is_reset(error.kind()),
            Failure::Upload(_) | Failure::Late | Failure::Connect(_) => false,
        }
    }
}

/// The same request again, if it is safe to repeat: a safe method and no body.
fn repetition(request: &Request<Upload>) -> Option<Request<Upload>> {
    let harmless = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    if !harmless || !request.body().is_end_stream() {
        return None;
    }
    let mut again = Request::new(Upload::empty());
    again.method_mut().clone_from(request.method());
    again.uri_mut().clone_from(request.uri());
    again.headers_mut().clone_from(request.headers());
    Some(again)
}

/// The root cause of an error.
fn root<'e>(error: &'e (dyn std::error::Error + 'static)) -> &'e (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

/// The client's message for a TLS failure, if it was one. The names in certificates are only in the log.
fn tls_detail(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let error: &rustls::Error = cause.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()?;
    Some(match error {
        rustls::Error::InvalidCertificate(_) => "the upstream's certificate was refused; the proxy's log says why",
        rustls::Error::AlertReceived(_) => "the upstream refused a TLS connection; the proxy's log says why",
        _ => "no TLS connection to the upstream could be made; the proxy's log says why",
    })
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}
