//! Read-only pages: the dashboard, health, metrics and the API description.

use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tollkeeper::http::Problem;

use super::problem::Refused;
use super::shared::Shared;
use crate::dashboard;
use crate::front::health;
use crate::metrics::{self, Exposition};
use crate::openapi;
use crate::service::Service;
use crate::tokens::{Measured, Purpose, Without};

/// 200 with JSON that must not be cached.
pub(super) fn json(answer: &impl Serialize) -> Response {
    json_as(answer, Body::from)
}

/// The same for a text that is JSON already.
pub(super) fn json_text(text: Vec<u8>) -> http::Response<Full<Bytes>> {
    content("application/json", Bytes::from(text))
}

/// The same, with any body.
pub(super) fn json_as<B>(answer: &impl Serialize, body: impl FnOnce(Bytes) -> B) -> http::Response<B> {
    // Larger than most answers, so that few grow while they are written.
    let mut text = Vec::with_capacity(384);
    serde_json::to_writer(&mut text, answer).expect("an answer is always JSON");
    content("application/json", body(text.into()))
}

fn content<B>(kind: &'static str, body: impl Into<B>) -> http::Response<B> {
    let mut response = http::Response::new(body.into());
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

/// `GET /metrics`, in the format and encoding that the client prefers.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accepted = |name: HeaderName| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.collect::<Vec<_>>().join(",")
    };
    let exposition = Exposition::preferred(&accepted(ACCEPT));
    let page = metrics::text(exposition, &shared.service.families());
    let mut response = if takes_gzip(&accepted(ACCEPT_ENCODING)) {
        let mut response = content(exposition.content_type(), gzip(page.as_bytes()));
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        content(exposition.content_type(), page)
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    response
}

/// Whether an `Accept-Encoding` header has gzip, at a weight above 0.
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|encoding| {
        let (name, parameters) = encoding.split_once(';').unwrap_or((encoding, ""));
        let weight = parameters.trim().strip_prefix("q=").map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && weight > 0.0
    })
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing to memory cannot fail")
}

/// `GET /openapi.json`, generated once: it depends only on settings that cannot change while the service runs. Not before somebody asks: it
/// takes megabytes for a moment, which the process would keep.
#[derive(Clone)]
pub(super) struct Description {
    facts: Arc<openapi::Facts>,
    text: Arc<OnceLock<Bytes>>,
}

impl Description {
    pub(super) fn new(service: &Service) -> Description {
        let policy = service.limiter.policy();
        let facts = openapi::Facts {
            deny_status: service.answer.deny_status.as_u16(),
            guarded_decisions: service.tokens.without(Purpose::Decide) != Without::Fine,
            guarded_metrics: service.tokens.measured == Measured::Nobody,
            example_rule: policy.rules().first().map_or("free-user", |rule| rule.name()).into(),
        };
        Description { facts: Arc::new(facts), text: Arc::default() }
    }

    pub(super) async fn answer(self) -> Result<Response, Refused> {
        let text = move || self.text.get_or_init(|| openapi::document(&self.facts).to_string().into()).clone();
        // Milliseconds: not on a thread that others wait for.
        let text = tokio::task::spawn_blocking(text).await;
        let text = text.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(content("application/json", text))
    }
}

/// `GET /`: the dashboard.
pub(super) async fn index() -> Response {
    dashboard::page()
}
