//! The audit of actions on single keys.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use tollkeeper::http::Problem;

use super::pages::json;
use super::problem::Refused;
use super::shared::Shared;
use crate::audit::ActionQuery;
use crate::strict;
use crate::wire::ActionsAnswer;

/// `GET /v1/actions`: who blocked, allowed, granted, lifted and reset what.
pub(super) async fn list(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let service = &shared.service;
    let query = ActionQuery::new(strict::query(uri.query(), "")?, service.limiter.store().now());
    let kept = &service.observer.audit.actions;
    let (actions, source) = kept
        .find(&query)
        .await
        .map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the audit cannot answer: {error}")))?;
    Ok(json(&ActionsAnswer { actions, dropped: kept.dropped(), source }))
}
