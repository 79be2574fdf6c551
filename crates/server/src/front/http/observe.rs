//! Middleware around every request: responses are counted, panics become a 500, and no client waits forever.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::future::poll_immediate;
use http::StatusCode;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tollkeeper::http::Problem;
use tracing::error;

use super::shared::Shared;
use crate::route::Route;
use crate::telemetry::Described;

/// Counts the response under its route, if it has one.
pub(super) async fn count(
    State((shared, route)): State<(Arc<Shared>, Option<Route>)>,
    request: Request,
    next: Next,
) -> Response {
    let name = route.map_or("", Route::name);
    // Of the frequent requests, only decisions are worth a trace.
    let traced = name.starts_with("/v1/").then(|| shared.service.tracer.begin(request.headers())).flatten();
    let method = request.method().clone();
    let answering =
        async { in_time(shared.backstop(), next.run(request)).await.unwrap_or_else(|problem| problem.into_response()) };
    let describe = |response: &Response| Described::http(&method, name, response.status());
    let response = shared.service.tracer.within(traced, answering, describe).await;
    shared.service.metrics.count_request(name, response.status().as_u16());
    response
}

/// Answers in this runtime: what takes long on a thread that serves connections holds up the decisions of others there.
pub(super) async fn beside(State(runtime): State<Handle>, request: Request, next: Next) -> Response {
    // Whoever gives up waiting ends the task, too.
    let mut answering = JoinSet::new();
    answering.spawn_on(next.run(request), &runtime);
    match answering.join_next().await {
        Some(Ok(response)) => response,
        // Panics are handled within, so this runtime is being stopped.
        Some(Err(_)) | None => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the service is stopping").closing().into_response()
        }
    }
}

/// Turns a panic into a 500.
pub(super) async fn survive(request: Request, next: Next) -> Response {
    surviving(next.run(request)).await.unwrap_or_else(|problem| problem.into_response())
}

/// The output, unless it takes longer than this. Most futures are done when they are first polled, and need no timer.
pub(super) async fn in_time<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Problem> {
    let mut work = pin!(work);
    if let Some(output) = poll_immediate(work.as_mut()).await {
        return Ok(output);
    }
    tokio::time::timeout(limit, work).await.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("no answer within {limit:?}; try again")).closing()
    })
}

/// The output, or a 500 instead of a panic. The panic itself was reported where it happened.
pub(super) async fn surviving<T>(work: impl Future<Output = T>) -> Result<T, Problem> {
    let mut work = pin!(work);
    let outcome = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
        Err(_) => Poll::Ready(None),
    });
    outcome.await.ok_or_else(|| {
        error!("a handler panicked; its request was answered with 500");
        let detail = "this is a bug in tollkeeper; its log says where, please report it";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })
}
