//! Decisions for callers that describe their requests as attributes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::future::join_all;
use http::StatusCode;
use http_body_util::{Either, Full};
use tollkeeper::http::Problem;
use tollkeeper::{CheckError, CostError, Overloaded, Policy, StoreError, Verdict};

use super::batch_size::require_fitting;
use super::large::{self, Large};
use super::pages::{json, json_as, json_text};
use super::problem::Refused;
use super::shared::{Answered, Shared};
use crate::front::connections::Reader;
use crate::metrics::{Front, Outcome};
use crate::service::Service;
use crate::strict::{nearest, quoted};
use crate::wire::{self, BatchAnswer, BatchResult, Check, CheckAnswer, CheckBody, HeadersAnswer, ReleaseAnswer};

/// `POST /v1/check`. The content type is ignored: `curl -d` calls everything a form.
pub(super) async fn check(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let reader = request.extensions().get::<Reader>().cloned();
    let body = shared.body(request).await.inspect_err(|_| shared.refused(1))?;
    Ok(decide(&shared, reader.as_ref(), &body).await?.map(Body::new))
}

/// The answer to the body of a check.
pub(super) async fn decide(
    shared: &Shared,
    reader: Option<&Reader>,
    body: &[u8],
) -> Result<http::Response<Answered>, Refused> {
    match wire::parse_check(body).inspect_err(|_| shared.refused(1))? {
        CheckBody::One(check) => {
            // Nearly no request names any.
            if check.rules().next().is_some() {
                known_rules("", &shared.service.limiter.policy(), &check).inspect_err(|_| shared.refused(1))?;
            }
            let verdict = shared.service.check(Front::Http, &check).await.map_err(|error| undecided(&error))?;
            let headers = headers(&shared.service, &check, &verdict);
            // Larger than most answers, so that few grow while they are written.
            let mut text = Vec::with_capacity(192 * (verdict.rows().len() + 1));
            CheckAnswer::new(&verdict, headers, &shared.service.seal).write(&mut text);
            Ok(json_text(text).map(Either::Left))
        }
        CheckBody::Batch { checks } => Ok(Box::pin(batch(&shared.service, reader, &checks)).await?),
    }
}

async fn batch(
    service: &Service,
    reader: Option<&Reader>,
    checks: &[Check<'_>],
) -> Result<http::Response<Answered>, Problem> {
    // None of its requests is decided then.
    let size = validate(service, checks).inspect_err(|_| service.refused(Front::Http, checks.len()))?;
    let owed = large::reserve(reader, size).inspect_err(|_| {
        checks.iter().for_each(|_| service.metrics.count_outcome(Front::Http, Outcome::Shed));
    })?;
    // Concurrently: a shared store is asked for many at a time, and none waits for the one before.
    let decided = join_all(checks.iter().map(|check| service.check(Front::Http, check))).await;
    let place = |(index, decided): (usize, Result<Verdict, CheckError>)| match decided {
        Ok(verdict) => Ok(Ok(verdict)),
        Err(CheckError::Overloaded(overloaded)) => Ok(Err(overloaded)),
        Err(CheckError::Cost(error)) => Err(bad_cost(&format!("checks[{index}]."), &error)),
        Err(error) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    };
    let decided: Vec<Result<Verdict, Overloaded>> =
        decided.into_iter().enumerate().map(place).collect::<Result<_, _>>()?;
    // Others of the batch may have been charged, so only one of which nothing was decided is shed as a whole.
    if let Some(Err(overloaded)) = decided.first().filter(|_| decided.iter().all(Result::is_err)) {
        return Err(Problem::overloaded(overloaded));
    }
    let mut results = Vec::with_capacity(decided.len());
    for (check, decided) in checks.iter().zip(&decided) {
        results.push(match decided {
            Ok(verdict) => {
                BatchResult::Decided(CheckAnswer::new(verdict, headers(service, check, verdict), &service.seal))
            }
            Err(overloaded) => BatchResult::Shed(overloaded.into()),
        });
    }
    Ok(json_as(&BatchAnswer { results }, |text| match owed {
        Some(owed) => Either::Right(Body::new(Large::new(text, owed))),
        None => Either::Left(Full::new(text)),
    }))
}

/// The headers for the caller's own response, if it asked for them.
pub(super) fn headers(service: &Service, check: &Check<'_>, verdict: &Verdict) -> Option<HeadersAnswer> {
    let headers = || service.answer.response_headers(verdict, service.limiter.store().now());
    check.wants_headers().then(|| HeadersAnswer(headers()))
}

/// A request that was not decided.
pub(super) fn undecided(error: &CheckError) -> Problem {
    match error {
        CheckError::Overloaded(overloaded) => Problem::overloaded(overloaded),
        CheckError::Cost(error) => bad_cost("", error),
        error => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// A batch is refused before its first check is charged, or not at all. How large its answer will be at most.
fn validate(service: &Service, checks: &[Check<'_>]) -> Result<usize, Problem> {
    let policy = service.limiter.policy();
    for (index, check) in checks.iter().enumerate() {
        known_rules(&format!("checks[{index}]."), &policy, check)?;
    }
    let size = require_fitting(&policy, checks)?;
    if policy.rules().iter().all(|rule| !rule.cost().is_carried()) {
        return Ok(size);
    }
    for (index, check) in checks.iter().enumerate() {
        policy.charges(check).map_err(|error| bad_cost(&format!("checks[{index}]."), &error))?;
    }
    Ok(size)
}

pub(super) fn bad_cost(place: &str, error: &CostError) -> Problem {
    let field = format!("{place}attributes.{}", error.attribute);
    let problem = format!(
        "{} is not a whole number, and rule `{}` takes its cost from here; send for example \"3\", or leave it out for 1",
        quoted(&error.value),
        error.rule
    );
    Problem::invalid(field, problem)
}

/// A misspelled rule name would let every request pass.
pub(super) fn known_rules(place: &str, policy: &Policy, check: &Check<'_>) -> Result<(), Problem> {
    match check.rules().enumerate().find(|(_, name)| policy.rule(name).is_none()) {
        Some((index, name)) => {
            let problem = format!("there is no rule named {}; {}", quoted(name), hint(policy, name));
            Err(Problem::invalid(format!("{place}rules[{index}]"), problem))
        }
        None => Ok(()),
    }
}

/// `POST /v1/release`.
pub(super) async fn release(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refused> {
    let body = shared.body(request).await?;
    let release = wire::parse_release(&body)?;
    let (key, hold) = (release.hold.key(&release.key), release.hold.name.hold);
    let Service { limiter, seal, .. } = &*shared.service;
    if limiter.policy().rule(&release.rule).is_none() {
        return Err(no_rule(&shared.service, &release.rule).into());
    }
    let fits = || seal.fits(&release.hold.seal, &release.rule, &key, hold);
    if !fits() {
        // Another instance may have sealed it under a key that this one does not know yet.
        seal.agree(limiter).await;
        if !fits() {
            return Ok(json(&ReleaseAnswer { released: false }));
        }
    }
    match limiter.release(&release.rule, &key, hold).await {
        None => Err(no_rule(&shared.service, &release.rule).into()),
        Some(Err(error)) => Err(unavailable(&error).into()),
        Some(Ok(released)) => Ok(json(&ReleaseAnswer { released })),
    }
}

/// 404 for a rule that does not exist, with the name that was probably meant.
pub(super) fn no_rule(service: &Service, name: &str) -> Problem {
    let hint = hint(&service.limiter.policy(), name);
    Problem::new(StatusCode::NOT_FOUND, format!("rule: there is none named {}; {hint}", quoted(name))).field("rule")
}

fn hint(policy: &Policy, name: &str) -> String {
    let names: Vec<&str> = policy.rules().iter().map(|rule| rule.name()).collect();
    match nearest(name, &names) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "GET /v1/rules lists the rules in force".into(),
    }
}

pub(super) fn unavailable(error: &StoreError) -> Problem {
    match error {
        StoreError::Overloaded(overloaded) => Problem::overloaded(overloaded),
        error => Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store cannot answer: {error}")),
    }
}
