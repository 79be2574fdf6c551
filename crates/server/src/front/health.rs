//! Health, also on an address of its own that answers whatever happens to the others: in its own thread, with a few
//! connections, of which a new one replaces the oldest instead of waiting.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tollkeeper::http::Problem;

use crate::service::{Readiness, Service};
use crate::wire::HealthAnswer;

/// The maximum number of connections; a new one beyond it replaces the oldest.
const PLACES: usize = 64;
/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process runs.
pub(super) fn healthz() -> Response {
    json(&HealthAnswer { status: "ok", rules: None })
}

/// Whether requests should be sent here: the store can decide, and the service is not stopping.
pub(super) fn readyz(service: &Service) -> Response {
    let problem = match service.readiness() {
        Readiness::Ready => {
            let rules = service.rules.as_ref().and_then(|following| following.status().trouble());
            return json(&HealthAnswer { status: "ok", rules });
        }
        Readiness::NoStore => "the store cannot decide",
        Readiness::Draining => {
            "draining: this instance is about to stop and still answers; send new requests elsewhere"
        }
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}

fn json(answer: &HealthAnswer) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(answer).expect("an answer is always JSON")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Serves health only, for as long as the process lives.
pub(crate) fn start(listener: std::net::TcpListener, service: Arc<Service>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("health".into()).spawn(move || runtime.block_on(serve(listener, service)))?;
    Ok(())
}

async fn serve(listener: std::net::TcpListener, service: Arc<Service>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("listen.health: {error}"),
    };
    let (mut connections, mut places): (JoinSet<()>, VecDeque<AbortHandle>) = Default::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        places.retain(|place| !place.is_finished());
        if places.len() >= PLACES
            && let Some(oldest) = places.pop_front()
        {
            oldest.abort();
        }
        let service = service.clone();
        let answer = service_fn(move |request| {
            let answer = answer(&service, &request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(16 * 1024).keep_alive(false);
        let connection = builder.serve_connection(TokioIo::new(stream), answer);
        places.push_back(connections.spawn(async move {
            let _ = tokio::time::timeout(2 * PATIENCE, connection).await;
        }));
    }
}

fn answer(service: &Service, request: &Request<Incoming>) -> Response {
    match request.uri().path() {
        "/healthz" => healthz(),
        "/readyz" => readyz(service),
        _ => Problem::new(StatusCode::NOT_FOUND, "this address serves only /healthz and /readyz").into_response(),
    }
}
