//! The gRPC front: Envoy's rate limit service, with health checking and reflection.
//!
//! One call of Envoy asks about several descriptors. They pass or fail together: the store decides all of their
//! charges at once, and one denial leaves nothing charged anywhere.

mod answer;
mod codec;
pub(crate) mod envoy;
mod request;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request as HttpRequest;
use axum::middleware::{Next, from_fn};
use axum::response::Response as HttpResponse;
use axum::routing::any;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tonic::server::Grpc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::service_fn;

use super::connections::{self, Limits, Listener, Peer};
use super::credential::{self, Refusal};
use crate::metrics::Front;
use crate::service::{Readiness, Service};
use crate::telemetry::Described;
use crate::tokens::Purpose;
use codec::StrictCodec;
use envoy::{DESCRIPTORS, METHOD, RateLimitRequest, RateLimitResponse, SERVICE};

/// The largest request; as on the HTTP API.
const MAX_MESSAGE: usize = 64 * 1024;
/// How often the health status is updated from the store.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Serves until `shutdown`, then finishes the calls in flight.
pub(crate) async fn run(
    listener: Listener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    run_within(Limits::of(&listener), listener, service, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: impl Into<Listener>,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    report(&health, service.readiness()).await;
    let watching = tokio::spawn(follow_readiness(health.clone(), service.clone()));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let traced = service.clone();
    let visitors = service.visitors(&service.metrics.connections.grpc);
    let router = Routes::new(health_service.max_decoding_message_size(MAX_MESSAGE))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .prepare()
        .into_axum_router()
        .route(&format!("/{METHOD}"), any(move |request| should_rate_limit(service.clone(), request)))
        .layer(from_fn(move |request, next| in_time(2 * limits.request, request, next)))
        .layer(from_fn(move |request, next| trace(traced.clone(), request, next)));
    let shutdown = async move {
        shutdown.await;
        watching.abort();
        // A health watcher has a stream that would never end.
        let mut health = health;
        for name in ["", SERVICE] {
            health.clear_service_status(name).await;
        }
    };
    connections::serve_router("gRPC", limits, visitors, protocol(limits), router, listener.into(), shutdown).await;
    Ok(())
}

/// HTTP/2 only.
fn protocol(limits: Limits) -> auto::Builder<TokioExecutor> {
    // An idle connection answers pings and stays open; one whose peer is gone does not.
    let ping = limits.idle / 3;
    let mut builder = auto::Builder::new(TokioExecutor::new()).http2_only();
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ping)
        .keep_alive_timeout(ping)
        .max_header_list_size(limits.head as u32)
        .max_concurrent_streams(limits.streams);
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
        let is_error = response.headers().get("grpc-status").is_some_and(|status| status != "0");
        Described::call("grpc", METHOD, is_error)
    };
    service.tracer.within(begun, next.run(request), describe).await
}

async fn follow_readiness(health: HealthReporter, service: Arc<Service>) {
    let mut known = None;
    loop {
        let ready = service.readiness();
        // Watchers only get changes.
        if known.replace(ready) != Some(ready) {
            report(&health, ready).await;
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

async fn report(health: &HealthReporter, readiness: Readiness) {
    let status = if readiness == Readiness::Ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in ["", SERVICE] {
        health.set_service_status(name, status).await;
    }
}

fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Missing => {
            Status::unauthenticated("this needs the token of decisions.token; send it as `authorization: Bearer TOKEN`")
        }
        Refusal::Wrong => Status::unauthenticated("this is not the token of decisions.token"),
        Refusal::TooLittle | Refusal::Closed => Status::permission_denied("this token decides nothing"),
        Refusal::TooMany => Status::resource_exhausted("too many wrong tokens come from this address; try again later"),
    }
}

/// Envoy's only method: reads the message, decides, writes the answer.
async fn should_rate_limit(service: Arc<Service>, request: HttpRequest) -> HttpResponse {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.ip);
    if let Err(refusal) = credential::require(&service, Purpose::Decide, request.headers(), peer).await {
        return refused(refusal).into_http();
    }
    let decide = service_fn(|request| answer_to(&service, request));
    let mut grpc = Grpc::new(StrictCodec::default()).max_decoding_message_size(MAX_MESSAGE);
    grpc.unary(decide, request).await.map(axum::body::Body::new)
}

async fn answer_to(
    service: &Service,
    request: Request<RateLimitRequest>,
) -> Result<Response<RateLimitResponse>, Status> {
    let asked = request::read(request.into_inner())?;
    let parts = request::parts(&service.limiter, &asked)?;
    let decided = service.check_together(Front::Grpc, &request::Described(&asked), &parts).await;
    let decided = decided.map_err(|error| Status::unavailable(error.to_string()))?;
    if decided.whole.is_unavailable() {
        // An error, not "over limit", so that Envoy's own failure mode applies.
        let rule = decided.whole.limiting().map(|row| row.charge.rule.name().to_string()).unwrap_or_default();
        return Err(Status::unavailable(format!("the store cannot answer, and rule `{rule}` says `closed`")));
    }
    let now = service.limiter.store().now();
    Ok(Response::new(answer::answer(&service.answer, &asked, &decided, now)))
}

#[cfg(test)]
mod tests;

/// Parses a message that is to be hostile.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(message: RateLimitRequest) -> Result<(), Status> {
    request::read(message).map(drop)
}
