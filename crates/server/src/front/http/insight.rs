//! Traffic analysis, and the audit of denials.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use tollkeeper::http::Problem;

use super::pages::json;
use super::problem::Refused;
use super::shared::Shared;
use crate::audit::Query;
use crate::strict;
use crate::wire::{NoQuery, ViolationsAnswer};

/// `GET /v1/insight`: all that a dashboard needs.
pub(super) async fn insight(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let NoQuery {} = strict::query(uri.query(), "")?;
    let service = &shared.service;
    Ok(json(&service.observer.report(&service.limiter, &service.metrics)))
}

/// `GET /v1/violations`: the audit.
pub(super) async fn violations(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let service = &shared.service;
    let query = Query::new(strict::query(uri.query(), "")?, service.limiter.store().now());
    let (page, source) =
        service.observer.violations(&service.limiter, &service.metrics, &query).await.map_err(|error| {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the audit cannot answer: {error}"))
        })?;
    let next = page.next.map(|next| next.to_string());
    Ok(json(&ViolationsAnswer {
        violations: page.violations,
        next,
        dropped: service.observer.dropped().violations,
        source,
    }))
}
