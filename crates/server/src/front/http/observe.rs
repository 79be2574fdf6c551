//! Middleware around every request: responses are counted, panics become a 500, and no client waits forever.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
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
    // Reading a body has its own, shorter deadline; after that only the store is waited for, which has a deadline
    // too.
    let backstop = 2 * shared.limits.request;
    let name = route.map_or("", Route::name);
    // Of the frequent requests, only decisions are worth a trace.
    let traced = name.starts_with("/v1/").then(|| shared.service.tracer.begin(request.headers())).flatten();
    let method = request.method().clone();
    let answering = async {
        match tokio::time::timeout(backstop, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("no answer within {backstop:?}; try again"))
                    .closing()
                    .into_response()
            }
        }
    };
    let describe = |response: &Response| Described::http(&method, name, response.status());
    let response = shared.service.tracer.within(traced, answering, describe).await;
    shared.service.metrics.count_request(name, response.status().as_u16());
    response
}

/// Turns a panic into a 500. The panic itself was reported where it happened.
pub(super) async fn survive(request: Request, next: Next) -> Response {
    let mut handler = pin!(next.run(request));
    let outcome = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
        Err(_) => Poll::Ready(None),
    });
    outcome.await.unwrap_or_else(|| {
        error!("a handler panicked; its request was answered with 500");
        let detail = "this is a bug in tollkeeper; its log says where, please report it";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
    })
}
