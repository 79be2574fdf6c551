//! Read-only pages: the dashboard, health, metrics and the API description.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;

use super::shared::Shared;
use crate::dashboard;
use crate::front::health;
use crate::metrics;
use crate::openapi;
use crate::service::Service;
use crate::tokens::{Measured, Purpose, Without};

/// 200 with JSON that must not be cached.
pub(super) fn json(answer: &impl Serialize) -> Response {
    let body = serde_json::to_vec(answer).expect("an answer is always JSON");
    content("application/json", body)
}

fn content(kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `GET /healthz`: the process runs.
pub(super) async fn healthz() -> Response {
    health::healthz()
}

/// `GET /readyz`: the store can decide, and the service does not stop.
pub(super) async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    health::readyz(&shared.service)
}

/// `GET /metrics`.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    content(metrics::CONTENT_TYPE, metrics::text(&shared.service.families()))
}

/// `GET /openapi.json`, generated once: it depends only on settings that cannot change while the service runs.
#[derive(Clone)]
pub(super) struct Description(Bytes);

impl Description {
    pub(super) fn new(service: &Service) -> Description {
        let policy = service.limiter.policy();
        let facts = openapi::Facts {
            deny_status: service.answer.deny_status.as_u16(),
            guarded_decisions: service.tokens.without(Purpose::Decide) != Without::Fine,
            guarded_metrics: service.tokens.measured == Measured::Nobody,
            example_rule: policy.rules().first().map_or("free-user", |rule| rule.name()).into(),
        };
        Description(openapi::document(&facts).to_string().into())
    }

    pub(super) async fn answer(self) -> Response {
        content("application/json", self.0)
    }
}

/// `GET /`: the dashboard.
pub(super) async fn index() -> Response {
    dashboard::page()
}
