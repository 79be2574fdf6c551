//! Exceptions for single keys, for those who look after them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{StatusCode, Uri};
use tollkeeper::ExceptionError;
use tollkeeper::http::Problem;

use super::admin::who;
use super::check::{no_rule, unavailable};
use super::{Front, Refused, pages::json};
use crate::service::Service;
use crate::service::changes::Changed;
use crate::strict::{self, Filled};
use crate::wire::{self, BucketChangeQuery, ExceptionQuery, ExceptionView, ExceptionsAnswer, LiftedAnswer};

/// `GET /v1/exceptions`: those in force.
pub(super) async fn list(State(front): State<Arc<Front>>) -> Response {
    let exceptions = front.service.limiter.exceptions().into_iter().map(ExceptionView::from).collect();
    json(&ExceptionsAnswer { exceptions })
}

/// `PUT /v1/exceptions`: makes one, in the place of one that the rule and key had.
pub(super) async fn put(State(front): State<Arc<Front>>, request: Request) -> Result<Response, Refused> {
    let ExceptionQuery { by } = strict::query(request.uri().query(), "")?;
    let body = front.body(request).await?;
    let limiter = &front.service.limiter;
    let exception = wire::parse_exception(&body, limiter.store().now())?;
    let made = limiter.except(exception).await.map_err(|error| refused(&front.service, error))?;
    front.service.changed(&Changed::Excepted(&made), who(&front.service, by));
    Ok(json(&ExceptionView::from(made)))
}

/// `DELETE /v1/exceptions`: ends one.
pub(super) async fn lift(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, Refused> {
    let hint = "ask for example /v1/exceptions?rule=free-user&key=42";
    let BucketChangeQuery { rule: Filled(rule), key: Filled(key), by } = strict::query(uri.query(), hint)?;
    let named = Some(rule.as_str()).filter(|rule| *rule != "*");
    let lifted = front.service.limiter.lift(named, &key).await.map_err(|error| refused(&front.service, error))?;
    if lifted {
        front.service.changed(&Changed::Lifted { rule: &rule, key: &key }, who(&front.service, by));
    }
    Ok(json(&LiftedAnswer { lifted }))
}

fn refused(service: &Service, error: ExceptionError) -> Problem {
    match error {
        ExceptionError::NoRule(name) => no_rule(service, &name),
        ExceptionError::Invalid { field, problem } => Problem::invalid(field, problem),
        ExceptionError::Store(error) => unavailable(&error),
        other => Problem::new(StatusCode::CONFLICT, other.to_string()),
    }
}
