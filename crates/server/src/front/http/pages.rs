//! What is only looked at: the front page, health, metrics and the description.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use tollgate::Rule;

use super::{Front, Problem};
use crate::front::Service;
use crate::metrics;
use crate::openapi;
use crate::wire::HealthAnswer;

/// 200 with JSON that nobody may keep.
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
    json(&HealthAnswer { status: "ok", rules: None })
}

/// `GET /readyz`: the store can decide.
pub(super) async fn readyz(State(front): State<Arc<Front>>) -> Response {
    if front.service.is_ready() {
        let rules = front.service.rules.as_ref().and_then(|following| following.status().trouble());
        return json(&HealthAnswer { status: "ok", rules });
    }
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the store cannot decide").into_response()
}

/// `GET /metrics`.
pub(super) async fn metrics(State(front): State<Arc<Front>>) -> Response {
    content(metrics::CONTENT_TYPE, front.service.numbers())
}

/// `GET /openapi.json`, written once: it depends only on what cannot change while the service runs.
#[derive(Clone)]
pub(super) struct Description(Bytes);

impl Description {
    pub(super) fn new(service: &Service) -> Description {
        Description(openapi::document(service).to_string().into())
    }

    pub(super) async fn answer(self) -> Response {
        content("application/json", self.0)
    }
}

/// `GET /`: what this is, and what is in force.
pub(super) async fn index(State(front): State<Arc<Front>>, headers: HeaderMap) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost:8080");
    let policy = front.service.limiter.policy();
    let mut rows = String::new();
    for rule in policy.rules() {
        write_row(&mut rows, rule);
    }
    if rows.is_empty() {
        rows.push_str("<tr><td colspan=5>No rules: every request passes.</td></tr>");
    }
    let page = PAGE
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{host}", &escaped(host))
        .replace("{rules}", &rows);
    let mut response = content("text/html; charset=utf-8", page);
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

fn write_row(rows: &mut String, rule: &Rule) {
    let mode = match (rule.active, rule.is_enforced()) {
        (false, _) => "off",
        (true, true) => "enforced",
        (true, false) => "shadow",
    };
    let cells = [
        format!("<code>{}</code>", escaped(&rule.name)),
        escaped(rule.scope.as_deref().unwrap_or("")),
        format!("<code>{}</code>", escaped(&rule.spec.key)),
        escaped(&rule.quota.to_string()),
        mode.to_string(),
    ];
    let description = escaped(rule.spec.description.as_deref().unwrap_or(""));
    // Writing to a string cannot fail.
    let _ = writeln!(rows, "<tr title=\"{description}\"><td>{}</td></tr>", cells.join("</td><td>"));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const PAGE: &str = include_str!("page.html");
