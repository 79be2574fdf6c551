//! Operations that decide requests, and what belongs to them.

use serde_json::{Value, json};

use super::writer::{JSON, Operation, PROBLEM, Writer};
use crate::wire::{
    BatchAnswer, CheckAnswer, CheckBody, DenialAnswer, Release, ReleaseAnswer, Reserve, ReserveAnswer, Settle,
    SettleAnswer,
};

pub(super) fn check(writer: &mut Writer<'_>) -> Operation {
    let verdict = writer.schema::<CheckAnswer<'_>>();
    let verdicts = writer.schema::<BatchAnswer<'_>>();
    Operation::new("check", "Decide a request, or a batch of them")
        .body(writer.body::<CheckBody<'_>>())
        .answer(200, "Decided, whether allowed or not.", JSON, json!({ "anyOf": [verdict, verdicts] }))
        .fails(&[400, 408, 413, 503])
}

pub(super) fn release(writer: &mut Writer<'_>) -> Operation {
    Operation::new("release", "Release a slot of a concurrency rule")
        .body(writer.body::<Release<'_>>())
        .answer(200, "The slot was released, or was already free.", JSON, writer.schema::<ReleaseAnswer>())
        .fails(&[400, 404, 408, 413, 503])
}

pub(super) fn reserve(writer: &mut Writer<'_>) -> Operation {
    Operation::new("reserve", "Charge an estimate that is corrected later")
        .body(writer.body::<Reserve<'_>>())
        .answer(200, "Decided, whether allowed or not.", JSON, writer.schema::<ReserveAnswer<'_>>())
        .fails(&[400, 408, 413, 503])
}

pub(super) fn settle(writer: &mut Writer<'_>) -> Operation {
    Operation::new("settle", "Correct an estimate to the actual cost, once")
        .parameters(vec![json!({
            "name": "id", "in": "path", "required": true, "description": "What /v1/reserve answered.",
            "schema": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
        })])
        .body(writer.body::<Settle<'_>>())
        .answer(200, "Corrected.", JSON, writer.schema::<SettleAnswer<'_>>())
        .fails(&[400, 404, 408, 413, 503])
}

/// Every method that OpenAPI knows: they all do the same.
pub(super) fn authorize(writer: &mut Writer<'_>, path: &str) -> Vec<(&'static str, Operation)> {
    const METHODS: [&str; 8] = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];
    let (name, parameters) = match path.ends_with("{path}") {
        true => ("Below", vec![below()]),
        false => ("", original()),
    };
    let deny_status = writer.facts.deny_status;
    let denied = writer.schema::<DenialAnswer>();
    let operation = |method: &'static str| {
        let id = format!("authorize{name}{}{}", method[..1].to_uppercase(), &method[1..]);
        let operation = Operation::new(&id, "Decide a request on behalf of a proxy")
            .parameters(parameters.clone())
            .empty(200, "It may pass.")
            .fails(&[400])
            .answer(deny_status, "Denied: a limit is reached.", PROBLEM, denied.clone())
            .answer(
                503,
                "The store cannot answer and a rule fails closed, or the service is overloaded.",
                PROBLEM,
                denied.clone(),
            );
        (method, with_limit_headers(operation, &[200, deny_status]))
    };
    METHODS.into_iter().map(operation).collect()
}

fn with_limit_headers(mut operation: Operation, statuses: &[u16]) -> Operation {
    for status in statuses {
        if let Some(response) = operation.responses.get_mut(status) {
            response["headers"] = json!({
                "RateLimit-Policy": { "description": "Each rule's limit, in the default style.", "schema": { "type": "string" } },
                "RateLimit": { "description": "What each rule has left.", "schema": { "type": "string" } },
                "Retry-After": { "description": "Seconds, rounded up; on a denial, unless the request can never pass.", "schema": { "type": "integer" } },
            });
        }
    }
    operation
}

/// Headers in which proxies describe the original request. An empty header counts as absent. The older names are only
/// in the description: whether one of them is read depends on the other, which a schema cannot express.
fn original() -> Vec<Value> {
    let header = |name: &str, pattern: &str, what: &str| {
        json!({
            "name": name, "in": "header", "required": false, "description": what,
            "schema": { "type": "string", "pattern": pattern },
        })
    };
    vec![
        header(
            "X-Forwarded-Method",
            "^[!#$%&'*+.^_`|~0-9A-Za-z-]*$",
            "The method of the original request; X-Original-Method is read where this is absent.",
        ),
        header(
            "X-Forwarded-Uri",
            "^(/.*|[A-Za-z]+://.*)?$",
            "Path and query of the original request; X-Original-URI is read where this is absent.",
        ),
        header("X-Forwarded-Host", "", "The host of the original request; Host is read where this is absent."),
    ]
}

fn below() -> Value {
    json!({
        "name": "path", "in": "path", "required": true,
        "description": "The path of the original request, sent with the original query and method.",
        "schema": { "type": "string", "minLength": 1 },
    })
}
