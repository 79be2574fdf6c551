//! What traffic looks like, and who was denied, for those who look after the rules.

use std::sync::Arc;

use axum::extract::{Query as Pairs, State};
use axum::response::Response;
use http::{StatusCode, Uri};

use super::{Front, Problem, pages::json};
use crate::audit::Query;
use crate::wire::ViolationsAnswer;

/// `GET /v1/insight`: everything that a dashboard needs.
pub(super) async fn insight(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Problem> {
    if let Some((name, _)) = pairs(&uri)?.into_iter().next() {
        return Err(Problem::invalid(name.as_str(), "is not known; this takes no parameters"));
    }
    let service = &front.service;
    Ok(json(&service.insight.report(&service.limiter, &service.metrics)))
}

/// `GET /v1/violations`: the audit.
pub(super) async fn violations(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Problem> {
    let service = &front.service;
    let query = Query::parse(pairs(&uri)?, service.limiter.store().now())?;
    let (page, source) =
        service.insight.violations(&service.limiter, &service.metrics, &query).await.map_err(|error| {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the audit cannot answer: {error}"))
        })?;
    let next = page.next.map(|next| next.to_string());
    Ok(json(&ViolationsAnswer {
        violations: page.violations,
        next,
        dropped: service.insight.dropped().violations,
        source,
    }))
}

pub(super) fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    let Pairs(pairs) = Pairs::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|error| Problem::invalid("", format!("the query cannot be read: {error}")))?;
    Ok(pairs)
}
