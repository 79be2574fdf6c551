//! The paths that show and change rules.

use serde_json::{Value, json};

use super::{JSON, Operation, Writer};
use crate::wire::{EditAnswer, HistoryAnswer, Rollback, RulesAnswer, rule_schema};

pub(super) fn paths(writer: &mut Writer) -> [(&'static str, Value); 4] {
    let list = Operation::new("listRules", "The rules in force, as written").answer(
        200,
        "In the order of the rules file.",
        JSON,
        writer.schema::<RulesAnswer<'_>>(),
    );
    let edited = writer.schema::<EditAnswer>();
    let whole: Value = rule_schema(&mut writer.schemas, &["name", "key", "limit"]).into();
    let create = Operation::new("createRule", "Add a rule after all others")
        .parameters(editor())
        .body(whole)
        .answer(201, "It is a rule now.", JSON, edited.clone())
        .fails(&[400, 408, 409, 412, 413, 503]);
    let unnamed: Value = rule_schema(&mut writer.schemas, &["key", "limit"]).into();
    let put = Operation::new("putRule", "Add a rule, or put another in its place")
        .parameters([vec![name()], editor()].concat())
        .body(unnamed)
        .answer(200, "It is a rule now.", JSON, edited.clone())
        .fails(&[400, 404, 408, 409, 412, 413, 503]);
    let delete = Operation::new("deleteRule", "Remove a rule")
        .parameters([vec![name()], editor()].concat())
        .answer(200, "It is gone.", JSON, edited.clone())
        .fails(&[400, 404, 409, 412, 503]);
    let rollback = Operation::new("rollbackRules", "Make the rules what they were at a version")
        .parameters(editor())
        .body(writer.schema::<Rollback>())
        .answer(200, "They are so again, as a new version.", JSON, edited)
        .fails(&[400, 404, 408, 409, 412, 413, 503]);
    let history = Operation::new("rulesHistory", "Who changed which rules, newest first")
        .parameters(vec![
            number("limit", 100, "How many versions at most; 20 unless told."),
            number("before", i64::MAX, "Only versions before this one."),
        ])
        .answer(200, "Versions.", JSON, writer.schema::<HistoryAnswer>())
        .fails(&[400, 409, 503]);
    [
        ("/v1/rules", json!({ "get": writer.admin(list), "post": writer.admin(create) })),
        ("/v1/rules/history", json!({ "get": writer.admin(history) })),
        ("/v1/rules/rollback", json!({ "post": writer.admin(rollback) })),
        ("/v1/rules/{name}", json!({ "put": writer.admin(put), "delete": writer.admin(delete) })),
    ]
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
