//! The HTTP front: decisions for callers and proxies, and the admin part.

mod actions;
mod admin;
mod authorize;
mod body;
mod check;
mod exceptions;
mod insight;
mod keys;
mod observe;
mod pages;
mod problem;
mod reserve;
mod rules;

use super::certified::Certified;
use super::connections::{self, Limits, Listener, Peer};
use crate::service::Service;
pub(crate) use body::discard;
pub(crate) use problem::Problem;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post, put};

/// The names of all routes, for metrics and for suggestions.
pub(crate) const ROUTES: [&str; 19] = [
    "/",
    "/healthz",
    "/metrics",
    "/openapi.json",
    "/readyz",
    "/v1/actions",
    "/v1/authorize",
    "/v1/check",
    "/v1/exceptions",
    "/v1/insight",
    "/v1/keys",
    "/v1/release",
    "/v1/reservations/{id}/settle",
    "/v1/reserve",
    "/v1/rules",
    "/v1/rules/history",
    "/v1/rules/rollback",
    "/v1/rules/{name}",
    "/v1/violations",
];

/// What handlers share.
#[derive(Debug)]
struct Front {
    service: Arc<Service>,
    limits: Limits,
}

/// Serves until `shutdown`, then finishes what is under way.
pub(crate) async fn run(
    listener: Listener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    run_within(Limits::default(), listener, service, shutdown).await
}

async fn run_within(
    limits: Limits,
    listener: impl Into<Listener>,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let router = router(Arc::new(Front { service, limits }));
    connections::serve_router("HTTP", limits, connections::protocol(limits), router, listener.into(), shutdown).await;
    Ok(())
}

fn router(front: Arc<Front>) -> Router {
    let description = pages::Description::new(&front.service);
    let admin = Router::new()
        .route("/", get(pages::index))
        .route("/metrics", get(pages::metrics))
        .route("/openapi.json", get(move || description.answer()))
        .route("/v1/actions", get(actions::list))
        .route("/v1/exceptions", get(exceptions::list).put(exceptions::put).delete(exceptions::lift))
        .route("/v1/keys", get(keys::show).delete(keys::reset))
        .route("/v1/insight", get(insight::insight))
        .route("/v1/rules", get(rules::list).post(rules::create))
        .route("/v1/rules/history", get(rules::history))
        .route("/v1/rules/rollback", post(rules::rollback))
        .route("/v1/rules/{*name}", put(rules::put).delete(rules::delete))
        .route("/v1/violations", get(insight::violations))
        .route_layer(from_fn_with_state(front.clone(), admin::require));
    Router::new()
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/v1/check", post(check::check))
        .route("/v1/release", post(check::release))
        .route("/v1/reserve", post(reserve::reserve))
        .route("/v1/reservations/{id}/settle", post(reserve::settle))
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
