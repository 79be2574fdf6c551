//! The gRPC front: Envoy's rate limit service, with health checking and reflection.
//!
//! One call of Envoy asks about several descriptors. They pass or fail together: the store decides all of their
//! charges at once, and one denial leaves nothing charged anywhere.

mod annotations;
mod answer;
mod attributes;
mod codec;
mod decide;
mod direct;
pub(crate) mod envoy;
mod health;
pub(crate) mod overrides;
mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::Request as HttpRequest;
use axum::middleware::{Next, from_fn, map_response};
use axum::response::Response as HttpResponse;
use axum::routing::any;
use http::HeaderValue;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tonic::codec::CompressionEncoding;
use tonic::server::Grpc;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tower::service_fn;

use super::connections::{Connected, Limits, Listener, Peer};
use super::credential::{self, Refusal};
use super::requests::{self, AtOnce, NeverPlain};
use crate::metrics::Front;
use crate::service::Service;
use crate::telemetry::Described;
use crate::tokens::Purpose;
use codec::{MAX_MESSAGE, StrictCodec};
use direct::Calls;
use envoy::{DESCRIPTORS, METHOD, RateLimitRequest, RateLimitResponse};

/// Where an error says which one it is.
const GRPC_STATUS: &str = "grpc-status";
/// What messages may be compressed with.
const GZIP: CompressionEncoding = CompressionEncoding::Gzip;

/// Serves until `shutdown`, then finishes the calls in flight.
pub(crate) async fn run(
    listener: Listener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    run_within(Limits::of(&listener), listener, service, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: impl Into<Listener>,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    health::report(&reporter, service.readiness()).await;
    let watching = crate::background::spawn(health::follow(reporter.clone(), service.clone()));
    let of_health = health::descriptors()?;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_file_descriptor_set(of_health.clone())
    };
    let (traced, listed, direct) = (service.clone(), service.clone(), service.clone());
    let visitors = service.visitors(&service.metrics.connections.grpc);
    let health_service =
        health_service.max_decoding_message_size(MAX_MESSAGE).accept_compressed(GZIP).send_compressed(GZIP);
    let router = Routes::new(health_service)
        .add_service(reflection().build_v1()?.accept_compressed(GZIP).send_compressed(GZIP))
        .add_service(reflection().build_v1alpha()?.accept_compressed(GZIP).send_compressed(GZIP))
        .prepare()
        .into_axum_router()
        .route(health::LIST, any(move |request| health::list(listed.clone(), request)))
        .route(&format!("/{METHOD}"), any(move |request| should_rate_limit(service.clone(), request)))
        .layer(map_response(with_usual_status))
        .layer(from_fn(move |request, next| in_time(2 * limits.request, request, next)))
        .layer(from_fn(move |request, next| trace(traced.clone(), request, next)));
    let shutdown = async move {
        shutdown.await;
        watching.abort();
        health::end(reporter).await;
    };
    let calls = Arc::new(Calls { service: direct, router });
    let refusing = calls.clone();
    let answer = move |request, from: &Arc<Connected>| calls.clone().answer(request, from.clone());
    let refuse = move || refusing.refuse();
    let protocol = move |executor| protocol(executor, limits);
    let plain = None::<Arc<NeverPlain>>;
    requests::serve("gRPC", limits, visitors, protocol, listener.into(), shutdown, answer, refuse, plain).await;
    Ok(())
}

/// HTTP/2 only.
fn protocol(executor: AtOnce, limits: Limits) -> auto::Builder<AtOnce> {
    // An idle connection answers pings and stays open; one whose peer is gone does not.
    let ping = limits.idle / 3;
    let mut builder = auto::Builder::new(executor).http2_only();
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ping)
        .keep_alive_timeout(ping)
        .max_header_list_size(limits.head as u32)
        .max_concurrent_streams(limits.streams)
        // No gRPC client reads it, and other servers of gRPC do not send it.
        .auto_date_header(false);
    builder
}

/// Ends a request that arrives too slowly; streams that have started to answer are not affected.
async fn in_time(limit: Duration, request: HttpRequest, next: Next) -> HttpResponse {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Status::deadline_exceeded(format!("no whole request within {limit:?}")).into_http(),
    }
}

/// Calls of the rate limit service, within their traces.
async fn trace(service: Arc<Service>, request: HttpRequest, next: Next) -> HttpResponse {
    let is_ours = request.uri().path().strip_prefix('/') == Some(METHOD);
    let begun = is_ours.then(|| service.tracer.begin(request.headers())).flatten();
    let describe = |response: &HttpResponse| {
        // An error is in the response headers.
        let is_error = response.headers().get(GRPC_STATUS).is_some_and(|status| status != "0");
        Described::call("grpc", METHOD, is_error)
    };
    service.tracer.within(begun, next.run(request), describe).await
}

/// A message that is too large is `RESOURCE_EXHAUSTED`, as in every other implementation of gRPC; one that cannot be
/// decompressed is the caller's error. Both are found by tonic before our code sees the message.
async fn with_usual_status(mut response: HttpResponse) -> HttpResponse {
    let is = |name: &str, what: &str| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(what))
    };
    let code = |code: Code| Some(HeaderValue::from(code as i32));
    let usual = match response.headers().get(GRPC_STATUS).map(HeaderValue::as_bytes) {
        Some(b"11") => code(Code::ResourceExhausted),
        Some(b"13") if is("grpc-message", "decompressing") => code(Code::InvalidArgument),
        _ => None,
    };
    if let Some(usual) = usual {
        response.headers_mut().insert(GRPC_STATUS, usual);
    }
    response
}

fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Missing => {
            Status::unauthenticated("this needs the token in decisions.token; send it as `authorization: Bearer TOKEN`")
        }
        Refusal::Wrong => Status::unauthenticated("this is not the token in decisions.token"),
        Refusal::TooLittle | Refusal::Closed => Status::permission_denied("this token does not allow decisions"),
        Refusal::TooMany => Status::resource_exhausted("too many wrong tokens come from this address; try again later"),
    }
}

/// Envoy's only method: reads the message, decides, writes the answer.
async fn should_rate_limit(service: Arc<Service>, request: HttpRequest) -> HttpResponse {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.ip);
    if let Err(refusal) = credential::require(&service, Purpose::Decide, request.headers(), peer).await {
        return refused(refusal).into_http();
    }
    let is_read = AtomicBool::new(false);
    let decide = service_fn(|request| answer_to(&service, request, &is_read));
    let mut grpc = Grpc::new(StrictCodec::default())
        .max_decoding_message_size(MAX_MESSAGE)
        .accept_compressed(GZIP)
        .send_compressed(GZIP);
    let response = grpc.unary(decide, request).await.map(axum::body::Body::new);
    // A message that cannot be read never gets as far as a decision.
    if !is_read.load(Relaxed) {
        service.refused(Front::Grpc, 1);
    }
    response
}

async fn answer_to(
    service: &Service,
    request: Request<RateLimitRequest>,
    is_read: &AtomicBool,
) -> Result<Response<RateLimitResponse>, Status> {
    is_read.store(true, Relaxed);
    decide::decide(service, request.into_inner()).await.map(Response::new)
}

#[cfg(test)]
mod tests;

/// Parses a message that is to be hostile.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(message: RateLimitRequest) -> Result<(), Status> {
    request::read(message).map(drop)
}
