//! Operations that show and change rules.

use serde_json::{Value, json};

use super::writer::{JSON, Operation, Writer};
use crate::observer::Preview;
use crate::wire::{
    EditAnswer, HistoryAnswer, HistoryQuery, NoQuery, Rollback, RulesAnswer, RulesChangeQuery, rule_schema,
};

pub(super) fn list(writer: &mut Writer<'_>) -> Operation {
    Operation::new("listRules", "The rules in force, as written")
        .parameters(writer.query::<NoQuery>())
        .answer(200, "In the order of the rules file.", JSON, writer.schema::<RulesAnswer<'_>>())
        .fails(&[400])
}

pub(super) fn create(writer: &mut Writer<'_>) -> Operation {
    Operation::new("createRule", "Add a rule after all others")
        .parameters(editor(writer))
        .body(rule_schema(&mut writer.requests, &["name", "key", "limit"]).into())
        .answer(201, "The rule was saved.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 408, 409, 412, 413, 503])
}

pub(super) fn preview(writer: &mut Writer<'_>) -> Operation {
    Operation::new("previewRule", "Try a changed rule on the requests of the last hours, without saving it")
        .parameters(writer.query::<NoQuery>())
        .body(rule_schema(&mut writer.requests, &["name", "key", "limit"]).into())
        .answer(200, "What it would have denied.", JSON, writer.schema::<Preview>())
        .fails(&[400, 408, 413])
}

pub(super) fn put(writer: &mut Writer<'_>) -> Operation {
    Operation::new("putRule", "Add a rule, or replace it")
        .parameters([vec![name()], editor(writer)].concat())
        .body(rule_schema(&mut writer.requests, &["key", "limit"]).into())
        .answer(200, "The rule was saved.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 404, 408, 409, 412, 413, 503])
}

pub(super) fn delete(writer: &mut Writer<'_>) -> Operation {
    Operation::new("deleteRule", "Remove a rule")
        .parameters([vec![name()], editor(writer)].concat())
        .answer(200, "The rule was removed.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 404, 409, 412, 503])
}

pub(super) fn rollback(writer: &mut Writer<'_>) -> Operation {
    Operation::new("rollbackRules", "Restore the rules of an earlier version")
        .parameters(editor(writer))
        .body(writer.body::<Rollback>())
        .answer(200, "Restored, as a new version.", JSON, writer.schema::<EditAnswer>())
        .fails(&[400, 404, 408, 409, 412, 413, 503])
}

pub(super) fn history(writer: &mut Writer<'_>) -> Operation {
    Operation::new("rulesHistory", "Who changed which rules, newest first")
        .parameters(writer.query::<HistoryQuery>())
        .answer(200, "Versions.", JSON, writer.schema::<HistoryAnswer>())
        .fails(&[400, 409, 503])
}

fn name() -> Value {
    json!({
        "name": "name", "in": "path", "required": true, "description": "The rule's name.", "example": "free-user",
        "schema": { "type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9_.:@-]+$" },
    })
}

/// Who changes rules, why, and the version that they have seen.
fn editor(writer: &mut Writer<'_>) -> Vec<Value> {
    let mut parameters = writer.query::<RulesChangeQuery>();
    parameters.push(json!({
        "name": "If-Match", "in": "header", "required": false,
        "description": "The ETag of the rules that this change is based on; refused with 412 if they have changed since.",
        "schema": { "type": "string", "pattern": "^(\"[0-9]{1,18}\"|[0-9]{1,18}|\\*)$" },
    }));
    parameters
}
