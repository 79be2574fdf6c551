//! The server behind the proxy: its address, connections that are used again, and what its failures are called.

use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::bodies::{Upload, UploadFailure};
use crate::front::http::Problem;

/// How long the upstream may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// To accept a connection.
    pub(crate) connect: Duration,
    /// From the last piece of the request that it took to the head of its response.
    pub(crate) response: Duration,
    /// Between two pieces of a body, in either direction, and between two bytes of a WebSocket.
    pub(crate) idle: Duration,
}

/// The server behind the proxy.
#[derive(Debug)]
pub(crate) struct Upstream {
    authority: Authority,
    client: Client<HttpConnector, Upload>,
    pub(crate) timeouts: Timeouts,
    /// When a failure was last logged. Clients decide how many there are, so the log takes one a second.
    logged: Mutex<Option<Instant>>,
}

/// Reads `http://HOST:PORT`.
pub(crate) fn parse_upstream(text: &str) -> Result<Authority, String> {
    let example = "write for example http://127.0.0.1:3000";
    let uri: Uri = text.parse().map_err(|error| format!("{text:?} is no URL ({error}); {example}"))?;
    let parts = uri.into_parts();
    match parts.scheme.as_ref().map(Scheme::as_str) {
        Some("http") => {}
        Some("https") => {
            return Err("this version speaks plain HTTP with the upstream; put what ends TLS there, or use its \
                        http:// address"
                .into());
        }
        Some(scheme) => return Err(format!("{scheme}:// is not spoken here; {example}")),
        None => return Err(format!("{text:?} has no scheme; {example}")),
    }
    let authority = parts.authority.ok_or_else(|| format!("{text:?} names no host; {example}"))?;
    if authority.as_str().contains('@') {
        return Err("a user and a password are not sent to an upstream; remove what is before the @".into());
    }
    match parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str) {
        "/" => Ok(authority),
        path => Err(format!("requests keep their own paths, so nothing is put before them; remove {path}")),
    }
}

impl Upstream {
    pub(crate) fn new(authority: Authority, timeouts: Timeouts) -> Upstream {
        /// Shorter than most servers keep an idle connection: one that is just being closed loses a request.
        const KEEP_IDLE: Duration = Duration::from_secs(4);
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(timeouts.connect));
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .set_host(false)
            .build(connector);
        Upstream { authority, client, timeouts, logged: Mutex::new(None) }
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The same path here.
    pub(super) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).expect("all three parts are there")
    }

    /// The response, once its head is there.
    pub(super) async fn send(&self, request: Request<Upload>) -> Result<Response<Incoming>, Problem> {
        let again = repetition(&request);
        let response = match (self.exchange(request).await, again) {
            (Err(failure), Some(again)) if failure.is_lost() => self.exchange(again).await,
            (outcome, _) => outcome,
        };
        response.map_err(|failure| self.problem(failure))
    }

    async fn exchange(&self, request: Request<Upload>) -> Result<Response<Incoming>, Failure> {
        let upload = request.body().state();
        let limit = self.timeouts.response;
        let mut response = pin!(self.client.request(request));
        let outcome = loop {
            match timeout_at(upload.moved() + limit, &mut response).await {
                Ok(outcome) => break outcome.map_err(Failure::Upstream),
                // Whoever still takes what the client sends is not late.
                Err(_) if upload.moved() + limit > Instant::now() => {}
                Err(_) => break Err(Failure::Late),
            }
        };
        outcome.map_err(|failure| upload.failure().map_or(failure, Failure::Upload))
    }

    /// What the client is told, which is no addresses: they are in the log.
    fn problem(&self, failure: Failure) -> Problem {
        let Timeouts { connect, response, idle } = self.timeouts;
        match failure {
            Failure::Upload(UploadFailure::Stalled) => {
                let detail = format!("nothing more of the body came within {idle:?}; send it at once");
                Problem::new(StatusCode::REQUEST_TIMEOUT, detail).closing()
            }
            Failure::Upload(UploadFailure::Broken) => {
                let detail = "the body ended early or is not framed as HTTP frames it; nothing was completed";
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
                let timed_out = io_kind(cause) == Some(io::ErrorKind::TimedOut);
                match (error.is_connect(), timed_out) {
                    (true, true) => {
                        let detail = format!("the upstream accepted no connection within {connect:?}");
                        Problem::new(StatusCode::GATEWAY_TIMEOUT, detail)
                    }
                    (true, false) => Problem::new(StatusCode::BAD_GATEWAY, "the upstream cannot be reached"),
                    (false, _) => Problem::new(StatusCode::BAD_GATEWAY, "the upstream gave no valid answer"),
                }
            }
        }
    }

    fn log(&self, failure: &str) {
        const PAUSE: Duration = Duration::from_secs(1);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() >= PAUSE) {
            *logged = Some(Instant::now());
            warn!("upstream {}: {failure}", self.authority);
        }
    }
}

/// Why there is no response.
#[derive(Debug)]
enum Failure {
    /// The client's doing.
    Upload(UploadFailure),
    /// The upstream took the request and said nothing.
    Late,
    Upstream(Error),
}

impl Failure {
    /// Whether the connection ended before anything was answered, as one does that the upstream had just closed.
    fn is_lost(&self) -> bool {
        let Failure::Upstream(error) = self else { return false };
        let cause = root(error);
        let ended = cause.downcast_ref::<hyper::Error>().is_some_and(|error| error.is_incomplete_message());
        let reset = matches!(io_kind(cause), Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe));
        !error.is_connect() && (ended || reset)
    }
}

/// The same request once more, if it may be sent twice: it changes nothing and has no body.
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

/// What was behind an error.
fn root(error: &Error) -> &(dyn std::error::Error + 'static) {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}
