//! Exceptions for single keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use tollkeeper::ExceptionError;
use tollkeeper::http::Problem;

use super::check::{no_rule, unavailable};
use super::guard::who;
use super::pages::json;
use super::problem::Refused;
use super::shared::Shared;
use crate::service::Service;
use crate::service::changes::Changed;
use crate::strict::{self, Filled};
use crate::wire::{self, BucketChangeQuery, ExceptionQuery, ExceptionView, ExceptionsAnswer, LiftedAnswer, NoQuery};

/// `GET /v1/exceptions`: those in force.
pub(super) async fn list(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let NoQuery {} = strict::query(uri.query(), "")?;
    let exceptions = shared.service.limiter.exceptions().into_iter().map(ExceptionView::from).collect();
    Ok(json(&ExceptionsAnswer { exceptions }))
}

/// `PUT /v1/exceptions`: makes one, replacing any other for the same rule and key.
pub(super) async fn put(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let ExceptionQuery { who: name } = strict::query(request.uri().query(), "")?;
    let body = shared.body(request).await?;
    let limiter = &shared.service.limiter;
    let by = who(name);
    let exception = wire::parse_exception(&body, limiter.store().now())?.made_by(&by);
    let made = limiter.except(exception).await.map_err(|error| refused(&shared.service, error))?;
    shared.service.changed(&Changed::Excepted(&made), by);
    Ok(json(&ExceptionView::from(made)))
}

/// `DELETE /v1/exceptions`: ends one.
pub(super) async fn lift(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let hint = "ask for example /v1/exceptions?rule=free-user&key=42";
    let query: BucketChangeQuery = strict::query(uri.query(), hint)?;
    let key = query.named_key();
    let BucketChangeQuery { rule: Filled(rule), who: name, .. } = query;
    let named = Some(rule.as_str()).filter(|rule| *rule != "*");
    let lifted = shared.service.limiter.lift(named, key).await.map_err(|error| refused(&shared.service, error))?;
    if let Some(exception) = &lifted {
        let key = exception.named_key();
        shared.service.changed(&Changed::Lifted { rule: &rule, key: &key }, who(name));
    }
    Ok(json(&LiftedAnswer::new(lifted.as_ref())))
}

fn refused(service: &Service, error: ExceptionError) -> Problem {
    match error {
        ExceptionError::NoRule(name) => no_rule(service, &name),
        ExceptionError::Invalid { field, problem } => Problem::invalid(field, problem),
        ExceptionError::Store(error) => unavailable(&error),
        other => Problem::new(StatusCode::CONFLICT, other.to_string()),
    }
}
