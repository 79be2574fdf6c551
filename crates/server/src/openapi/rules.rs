//! Operations that show and change rules.

use serde_json::{Value, json};

use super::{JSON, Operation, Writer};
use crate::wire::{EditAnswer, HistoryAnswer, Rollback, RulesAnswer, rule_schema};

pub(super) fn list(writer: &mut Writer<'_>) -> Operation {
    let rules = writer.schema::<RulesAnswer<'_>>();
    Operation::new("listRules", "The rules in force, as written").answer(
        200,
        "In the order of the rules file.",
        JSON,
        rules,
    )
}

pub(super) fn create(writer: &mut Writer<'_>) -> Operation {
    Operation::new("createRule", "Add a rule after all others")
        .parameters(editor())
        .body(rule_schema(&mut writer.schemas, &["name", "key", "limit"]).into())
        .answer(201, "It is a rule now.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 408, 409, 412, 413, 503])
}

pub(super) fn put(writer: &mut Writer<'_>) -> Operation {
    Operation::new("putRule", "Add a rule, or put another in its place")
        .parameters([vec![name()], editor()].concat())
        .body(rule_schema(&mut writer.schemas, &["key", "limit"]).into())
        .answer(200, "It is a rule now.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 404, 408, 409, 412, 413, 503])
}

pub(super) fn delete(writer: &mut Writer<'_>) -> Operation {
    Operation::new("deleteRule", "Remove a rule")
        .parameters([vec![name()], editor()].concat())
        .answer(200, "It is gone.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 404, 409, 412, 503])
}

pub(super) fn rollback(writer: &mut Writer<'_>) -> Operation {
    Operation::new("rollbackRules", "Make the rules what they were at a version")
        .parameters(editor())
        .body(writer.schema::<Rollback>())
        .answer(200, "They are so again, as a new version.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 404, 408, 409, 412, 413, 503])
}

pub(super) fn history(writer: &mut Writer<'_>) -> Operation {
    Operation::new("rulesHistory", "Who changed which rules, newest first")
        .parameters(vec![
            number("limit", 100, "How many versions at most; 20 by default."),
            number("before", i64::MAX, "Only versions before this one."),
        ])
        .answer(200, "Versions.", JSON, writer.schema::<HistoryAnswer>())
        .fails(&[400, 409, 503])
}

fn name() -> Value {
    json!({
        "name": "name", "in": "path", "required": true, "description": "The rule's name.", "example": "free-user",
        "schema": { "type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9_.:@-]+$" },
    })
}

fn number(name: &str, most: i64, what: &str) -> Value {
    json!({
        "name": name, "in": "query", "required": false, "description": what,
        "schema": { "type": "integer", "minimum": 1, "maximum": most },
    })
}

/// Who changes rules, why, and what it has seen of them.
fn editor() -> Vec<Value> {
    let text = |name: &str, what: &str| {
        json!({
            "name": name, "in": "query", "required": false, "description": what,
            "schema": { "type": "string", "maxLength": 200, "pattern": r"^[^\u0000]*$" },
        })
    };
    vec![
        text("as", "Who changes it, for the history."),
        text("message", "Why, for the history."),
        json!({
            "name": "If-Match", "in": "header", "required": false,
            "description": "The ETag of the rules that this change is meant for; refused with 412 if they are others by now.",
            "schema": { "type": "string", "pattern": "^(\"[0-9]{1,18}\"|[0-9]{1,18}|\\*)$" },
        }),
    ]
}
