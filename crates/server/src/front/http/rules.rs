//! The rules: listed from wherever they are, changed if they are in Postgres.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use tollkeeper::http::Problem;

use super::check::no_rule;
use super::guard::who;
use super::pages::json;
use super::problem::{Refused, segment};
use super::shared::Shared;
use crate::database::DatabaseError;
use crate::rules::{Change, Edit, Following, RulesError};
use crate::service::Service;
use crate::strict::{self, Note, quoted};
use crate::wire::{
    self, EditAnswer, HistoryAnswer, HistoryQuery, NoQuery, RulesAnswer, RulesChangeQuery, WarningAnswer,
};

/// `GET /v1/rules`: the rules in force, as written.
pub(super) async fn list(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let NoQuery {} = strict::query(uri.query(), "")?;
    let service = &shared.service;
    let policy = service.limiter.policy();
    let status = service.rules.as_ref().map(|following| following.status());
    let version = status.as_ref().map(|status| status.version);
    let answer = json(&RulesAnswer {
        rules: policy.rules().iter().map(|rule| (&**rule).into()).collect(),
        source: if status.is_some() { "postgres" } else { "file" },
        version,
        problem: status.and_then(|status| status.unreachable.or(status.refused.map(|(_, problem)| problem))),
    });
    Ok(tagged(answer, version))
}

/// `POST /v1/rules`: a new rule, after all others.
pub(super) async fn create(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let (following, edit) = editor(&shared.service, &request)?;
    let body = shared.body(request).await?;
    let rule = wire::parse_rule(&body, None)?;
    let mut answer = change(&shared.service, following, edit, Change::Create(Box::new(rule))).await?;
    *answer.status_mut() = StatusCode::CREATED;
    Ok(answer)
}

/// `POST /v1/preview`: what a rule would have denied of the remembered requests. Changes nothing.
pub(super) async fn preview(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let NoQuery {} = strict::query(request.uri().query(), "")?;
    let body = shared.body(request).await?;
    let rule = wire::parse_rule(&body, None)?;
    let service = shared.service.clone();
    // Thousands of decisions: not on a thread that others wait for.
    let tried = tokio::task::spawn_blocking(move || service.observer.preview(&service.limiter, &service.metrics, rule));
    let preview = tried.await.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(json(&preview))
}

/// `PUT /v1/rules/NAME`: creates or replaces a rule.
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Refused> {
    let (following, edit) = editor(&shared.service, &request)?;
    let name = segment("name", name)?;
    let body = shared.body(request).await?;
    let rule = wire::parse_rule(&body, Some(&name))?;
    Ok(change(&shared.service, following, edit, Change::Put(Box::new(rule))).await?)
}

/// `DELETE /v1/rules/NAME`.
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Refused> {
    let (following, edit) = editor(&shared.service, &request)?;
    Ok(change(&shared.service, following, edit, Change::Delete(segment("name", name)?)).await?)
}

/// `POST /v1/rules/rollback`: restores the rules of a version, as a new version.
pub(super) async fn rollback(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let (following, edit) = editor(&shared.service, &request)?;
    let body = shared.body(request).await?;
    let version = wire::parse_rollback(&body)?.version;
    Ok(change(&shared.service, following, edit, Change::Rollback(version)).await?)
}

/// `GET /v1/rules/history`: who changed what, newest first.
pub(super) async fn history(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Refused> {
    let following = following(&shared.service)?;
    let HistoryQuery { limit, before } = strict::query(uri.query(), "")?;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let limit = signed(limit.map_or(HistoryQuery::USUAL_LIMIT, |limit| limit.0));
    let before = before.map(|before| signed(before.0));
    let versions = following.table().history(before, limit).await.map_err(|error| problem(&shared.service, error))?;
    Ok(json(&HistoryAnswer { versions }))
}

async fn change(service: &Service, following: &Following, edit: Edit, change: Change) -> Result<Response, Problem> {
    let warnings = match &change {
        Change::Create(rule) | Change::Put(rule) => WarningAnswer::of(rule),
        _ => Vec::new(),
    };
    let edited = following.table().edit(&edit, change).await.map_err(|error| problem(service, error))?;
    // The caller's next request here should see its own change.
    following.wait_for(edited.version).await;
    Ok(tagged(json(&EditAnswer { version: edited.version, changed: edited.changed, warnings }), Some(edited.version)))
}

/// Rules in a file are changed in the file.
fn following(service: &Service) -> Result<&Following, Problem> {
    service.rules.as_deref().ok_or_else(|| {
        let detail = "the rules come from the configuration file, so they are changed there; set rules_from to keep them \
                      in Postgres";
        Problem::new(StatusCode::CONFLICT, detail)
    })
}

/// Where to change rules, and who does it.
fn editor<'s>(service: &'s Service, request: &Request) -> Result<(&'s Following, Edit), Problem> {
    let following = following(service)?;
    let RulesChangeQuery { by, message } = strict::query(request.uri().query(), "")?;
    let (by, message) = (who(by), message.map(|Note(text)| text));
    Ok((following, Edit { by, message, seen: seen(request.headers())?, dry_run: false }))
}

/// The version that the editor has seen, if given.
fn seen(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).map(Some).ok_or_else(|| {
        Problem::invalid("If-Match", format!("{} is not a version; send the ETag of GET /v1/rules", quoted(text)))
    })
}

fn tagged(mut response: Response, version: Option<i64>) -> Response {
    let tag = version.and_then(|version| HeaderValue::try_from(format!("\"{version}\"")).ok());
    response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
    response
}

fn problem(service: &Service, error: RulesError) -> Problem {
    let detail = error.to_string();
    match error {
        RulesError::Missing(name) => no_rule(service, &name),
        RulesError::NoVersion { .. } => Problem::new(StatusCode::NOT_FOUND, detail).field("version"),
        RulesError::Exists(_) => Problem::new(StatusCode::CONFLICT, detail).field("name"),
        RulesError::Bad { .. } => Problem::new(StatusCode::CONFLICT, detail),
        RulesError::Changed { .. } => Problem::new(StatusCode::PRECONDITION_FAILED, detail),
        RulesError::Nul { field, .. } => {
            Problem::invalid(field, "contains a NUL character, which Postgres cannot store")
        }
        RulesError::Database(DatabaseError::Unreachable(_) | DatabaseError::Refused { .. }) | RulesError::Busy => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the rules cannot be reached: {detail}"))
        }
    }
}
