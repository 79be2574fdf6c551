//! What people did to single keys, and who does it.

use serde_json::{Value, json};

use super::{JSON, Operation, Writer, violation_filters};
use crate::audit::ActionKind;
use crate::wire::ActionsAnswer;

pub(super) fn path(writer: &mut Writer) -> Value {
    let list = Operation::new("listActions", "What was done to single keys: blocks, grants, resets and others")
        .parameters(filters())
        .answer(200, "The newest first.", JSON, writer.schema::<ActionsAnswer>())
        .fails(&[400, 503]);
    json!({ "get": writer.admin(list) })
}

/// Those of the violations that an action has too, and its kind.
fn filters() -> Vec<Value> {
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
pub(super) fn by() -> Value {
    json!({
        "name": "as", "in": "query", "required": false, "description": "Who does it, for the audit.",
        "schema": { "type": "string", "maxLength": 200, "pattern": r"^[^\u0000]*$" },
    })
}
