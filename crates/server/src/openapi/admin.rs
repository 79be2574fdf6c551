//! Operations that show and change single keys, and what happened to them.

use serde_json::{Value, json};

use super::{JSON, Operation, Writer};
use crate::audit::{ActionKind, Query};
use crate::insight::Report;
use crate::wire::{
    ActionsAnswer, ExceptionBody, ExceptionView, ExceptionsAnswer, KeyAnswer, LiftedAnswer, ResetAnswer,
    ViolationsAnswer,
};

pub(super) fn show_key(writer: &mut Writer<'_>) -> Operation {
    Operation::new("showKey", "Show a bucket without touching it")
        .parameters(bucket(writer))
        .answer(200, "The bucket as it is now.", JSON, writer.schema::<KeyAnswer<'_>>())
        .fails(&[400, 404, 503])
}

pub(super) fn reset_key(writer: &mut Writer<'_>) -> Operation {
    Operation::new("resetKey", "Forget a bucket")
        .parameters([bucket(writer), vec![by()]].concat())
        .answer(200, "Forgotten, or there was nothing to forget.", JSON, writer.schema::<ResetAnswer>())
        .fails(&[400, 404, 503])
}

pub(super) fn insight(writer: &mut Writer<'_>) -> Operation {
    Operation::new("insight", "What traffic looks like: series, hot keys, findings, the store")
        .answer(200, "As far as this process knows.", JSON, writer.schema::<Report>())
        .fails(&[400])
}

pub(super) fn violations(writer: &mut Writer<'_>) -> Operation {
    Operation::new("listViolations", "Who was denied: the audit")
        .parameters(violation_filters())
        .answer(200, "The newest first.", JSON, writer.schema::<ViolationsAnswer>())
        .fails(&[400, 503])
}

pub(super) fn actions(writer: &mut Writer<'_>) -> Operation {
    Operation::new("listActions", "What was done to single keys: blocks, grants, resets and others")
        .parameters(action_filters())
        .answer(200, "The newest first.", JSON, writer.schema::<ActionsAnswer>())
        .fails(&[400, 503])
}

pub(super) fn exceptions(writer: &mut Writer<'_>) -> Operation {
    let answer = writer.schema::<ExceptionsAnswer>();
    Operation::new("listExceptions", "The exceptions for single keys").answer(200, "Those in force.", JSON, answer)
}

pub(super) fn put_exception(writer: &mut Writer<'_>) -> Operation {
    let made = "In force here now, and within a second wherever the store is shared.";
    Operation::new("putException", "Block or allow a key, or grant it a limit of its own")
        .parameters(vec![by()])
        .body(writer.schema::<ExceptionBody<'_>>())
        .answer(200, made, JSON, writer.schema::<ExceptionView>())
        .fails(&[400, 404, 408, 409, 413, 503])
}

pub(super) fn lift_exception(writer: &mut Writer<'_>) -> Operation {
    Operation::new("liftException", "End an exception")
        .parameters([bucket(writer), vec![by()]].concat())
        .answer(200, "Ended, or there was none.", JSON, writer.schema::<LiftedAnswer>())
        .fails(&[400, 503])
}

/// Parameters that name a bucket, with a rule that exists as the example.
fn bucket(writer: &Writer<'_>) -> Vec<Value> {
    let rule = writer.facts.example_rule.as_str();
    let required = |name: &str, example: &str, what: &str| {
        json!({
            "name": name, "in": "query", "required": true, "description": what, "example": example,
            "schema": { "type": "string", "minLength": 1 },
        })
    };
    vec![required("rule", rule, "The rule's name."), required("key", "42", "The key's text, as in the row of a check.")]
}

/// What narrows the audit. All are optional.
fn violation_filters() -> Vec<Value> {
    let text = |name: &str, what: &str| {
        let schema = json!({ "type": "string", "minLength": 1 });
        json!({ "name": name, "in": "query", "required": false, "description": what, "schema": schema })
    };
    let mut all = vec![
        text("user_id", "The request's user."),
        text("ip", "An address, or a network such as 10.0.0.0/8."),
        text("rule", "The rule's name."),
        text("key", "The bucket's key; a secret is found by itself or by its fingerprint."),
        text("since", "From here on: 1h for so long ago, or 2026-01-31T12:00:00Z."),
        text("until", "Before here, written the same way."),
        text("limit", "How many at most; 100 unless given."),
        text("cursor", "Where to go on: `next` of an answer."),
    ];
    let pattern = |pattern: &str, example: &str| json!({ "type": "string", "pattern": pattern, "examples": [example] });
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    // Shorter spellings of IPv6 are taken too, but no pattern tells them.
    let ip = format!(r"^({octet}\.){{3}}{octet}(/(3[0-2]|[12]?[0-9]))?$|^([0-9a-f]{{1,4}}:){{7}}[0-9a-f]{{1,4}}$");
    all[1]["schema"] = pattern(&ip, "203.0.113.9");
    all[4]["schema"] = pattern(
        "^[1-9][0-9]{0,3}(s|min|h)$|^20[0-9]{2}-(0[1-9]|1[0-2])-([01][1-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
        "1h",
    );
    all[5]["schema"] = all[4]["schema"].clone();
    all[6]["schema"] =
        json!({ "type": "integer", "minimum": 1, "maximum": Query::MAX_LIMIT, "default": Query::USUAL_LIMIT });
    all[7]["schema"] = pattern("^[0-9]{1,16}\\.[0-9]{1,15}$", "1767225600000000.7");
    all
}

/// Those of the violations that an action has too, and its kind.
fn action_filters() -> Vec<Value> {
    const SHARED: [&str; 5] = ["rule", "key", "since", "until", "limit"];
    let mut all = violation_filters();
    all.retain(|filter| filter["name"].as_str().is_some_and(|name| SHARED.contains(&name)));
    all.push(json!({
        "name": "action", "in": "query", "required": false, "description": "What was done.",
        "schema": { "type": "string", "enum": ActionKind::NAMES },
    }));
    all
}

/// Who changes something.
fn by() -> Value {
    json!({
        "name": "as", "in": "query", "required": false, "description": "Who does it, for the audit.",
        "schema": { "type": "string", "maxLength": 200, "pattern": r"^[^\u0000]*$" },
    })
}
