//! The server behind the proxy: its address, pooled connections, and its failures as problems.

mod address;

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};
use tollkeeper::http::Problem;
use tracing::warn;

use super::bodies::{Pace, Upload, UploadFailure};
use crate::metrics::{Proxied, UpstreamError};
use crate::tls::{Connector, Renewable};
pub(crate) use address::{Address, parse_upstream};

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
    client: Client<Connector, Upload>,
    pub(crate) timeouts: Timeouts,
    /// When a failure was last logged. Clients can cause any number, so only one a second is logged.
    logged: Mutex<Option<Instant>>,
}

impl Upstream {
    /// `tls` is for an https:// address.
    pub(crate) fn new(address: Address, tls: Option<Arc<Renewable<ClientConfig>>>, timeouts: Timeouts) -> Upstream {
        /// Shorter than most servers keep an idle connection: one that is being closed loses a request.
        const KEEP_IDLE: Duration = Duration::from_secs(4);
        let connector = Connector::new(tls.zip(address.certified.clone()), timeouts.connect);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .set_host(false)
            .build(connector);
        Upstream { address, client, timeouts, logged: Mutex::new(None) }
    }

    /// The `Host` of requests that name none.
    pub(super) fn host(&self) -> HeaderValue {
        HeaderValue::from_str(self.address.authority.as_str()).expect("an authority is plain text")
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The same path on the upstream.
    pub(super) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.address.scheme());
        parts.authority = Some(self.address.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).expect("all three parts are there")
    }

    /// The response, once its head is there.
    pub(super) async fn send(
        &self,
        request: Request<Upload>,
        counted: &Proxied,
    ) -> Result<Response<Incoming>, Problem> {
        let (began, again) = (Instant::now(), repetition(&request));
        let response = match (self.exchange(request).await, again) {
            (Err(failure), Some(again)) if failure.is_lost() => self.exchange(again).await,
            (outcome, _) => outcome,
        };
        match &response {
            Ok(response) => counted.answered(response.status().as_u16(), began.elapsed()),
            Err(failure) => failure.error().into_iter().for_each(|error| counted.failed(error)),
        }
        response.map_err(|failure| self.problem(failure))
    }

    async fn exchange(&self, request: Request<Upload>) -> Result<Response<Incoming>, Failure> {
        let upload = request.body().state();
        let limit = self.timeouts.response;
        let mut response = pin!(self.client.request(request));
        let outcome = loop {
            match timeout_at(upload.moved() + limit, &mut response).await {
                Ok(outcome) => break outcome.map_err(Failure::Upstream),
                // An upstream that still reads the client's body is not late.
                Err(_) if upload.moved() + limit > Instant::now() => {}
                Err(_) => break Err(Failure::Late),
            }
        };
        outcome.map_err(|failure| upload.failure().map_or(failure, Failure::Upload))
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
            Failure::Upstream(error) => {
                let cause = root(&error);
                self.log(&format!("{error}: {cause}"));
                if let Some(detail) = tls_detail(cause) {
                    return Problem::new(StatusCode::BAD_GATEWAY, detail);
                }
                let timed_out = io_kind(cause) == Some(io::ErrorKind::TimedOut);
                match (error.is_connect(), timed_out) {
                    (true, true) => {
                        let detail = format!("the upstream did not accept a connection within {connect:?}");
                        Problem::new(StatusCode::GATEWAY_TIMEOUT, detail)
                    }
                    (true, false) => Problem::new(StatusCode::BAD_GATEWAY, "the upstream is unreachable"),
                    (false, _) => Problem::new(StatusCode::BAD_GATEWAY, "the upstream sent an invalid response"),
                }
            }
        }
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
    Upstream(Error),
}

impl Failure {
    /// What the upstream did wrong, if it is not the client's fault.
    fn error(&self) -> Option<UpstreamError> {
        let error = match self {
            Failure::Upload(_) => return None,
            Failure::Late => return Some(UpstreamError::Timeout),
            Failure::Upstream(error) => error,
        };
        let cause = root(error);
        Some(match (error.is_connect(), io_kind(cause)) {
            _ if tls_detail(cause).is_some() => UpstreamError::Tls,
            (true, Some(io::ErrorKind::TimedOut)) => UpstreamError::ConnectTimeout,
            (true, _) => UpstreamError::Unreachable,
            (false, _) => UpstreamError::InvalidResponse,
        })
    }

    /// Whether the connection ended before any response, as happens when the upstream has just closed it.
    fn is_lost(&self) -> bool {
        let Failure::Upstream(error) = self else { return false };
        let cause = root(error);
        let ended = cause.downcast_ref::<hyper::Error>().is_some_and(|error| error.is_incomplete_message());
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        // The last is an end of TLS without close_notify, from servers that just close.
        let reset = matches!(io_kind(cause), Some(ConnectionReset | BrokenPipe | UnexpectedEof));
        !error.is_connect() && (ended || reset)
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
fn root(error: &Error) -> &(dyn std::error::Error + 'static) {
    let mut cause: &(dyn std::error::Error + 'static) = error;
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
