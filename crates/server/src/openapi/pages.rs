//! Read-only operations: the dashboard, health, metrics and this description.

use serde_json::json;

use super::writer::{JSON, Operation, Writer};
use crate::wire::HealthAnswer;

pub(super) fn index() -> Operation {
    Operation::new("index", "The dashboard").answer(200, "A page.", "text/html", json!({ "type": "string" }))
}

pub(super) fn metrics() -> Operation {
    let text = json!({ "type": "string" });
    let mut operation = Operation::new("metrics", "Metrics for Prometheus, or as OpenMetrics").answer(
        200,
        "The text format, or OpenMetrics for a client that prefers it.",
        "text/plain",
        text.clone(),
    );
    if let Some(answer) = operation.responses.get_mut(&200) {
        answer["content"]["application/openmetrics-text"] = json!({ "schema": text });
    }
    operation
}

pub(super) fn description() -> Operation {
    Operation::new("describe", "This description").answer(200, "OpenAPI 3.1.", JSON, json!({ "type": "object" }))
}

pub(super) fn healthz(writer: &mut Writer<'_>) -> Operation {
    let health = writer.schema::<HealthAnswer>();
    Operation::new("healthz", "Whether the process is up").answer(200, "It is up.", JSON, health)
}

pub(super) fn readyz(writer: &mut Writer<'_>) -> Operation {
    let health = writer.schema::<HealthAnswer>();
    Operation::new("readyz", "Whether the store can decide").answer(200, "It can.", JSON, health).fails(&[503])
}
