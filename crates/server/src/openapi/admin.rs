//! Operations that inspect and change single keys, and the audit.

use schemars::JsonSchema;
use serde_json::Value;

use super::writer::{JSON, Operation, Writer};
use crate::audit::{ActionsQuery, ViolationsQuery};
use crate::observer::Report;
use crate::wire::{
    ActionsAnswer, BucketChangeQuery, BucketQuery, ExceptionBody, ExceptionQuery, ExceptionView, ExceptionsAnswer,
    KeyAnswer, LiftedAnswer, NoQuery, ResetAnswer, ViolationsAnswer,
};

pub(super) fn show_key(writer: &mut Writer<'_>) -> Operation {
    Operation::new("showKey", "Show a bucket without charging it")
        .parameters(bucket::<BucketQuery>(writer))
        .answer(200, "The bucket as it is now.", JSON, writer.schema::<KeyAnswer<'_>>())
        .fails(&[400, 404, 503])
}

pub(super) fn reset_key(writer: &mut Writer<'_>) -> Operation {
    Operation::new("resetKey", "Reset a bucket")
        .parameters(bucket::<BucketChangeQuery>(writer))
        .answer(200, "The bucket was reset, or was unused.", JSON, writer.schema::<ResetAnswer>())
        .fails(&[400, 404, 503])
}

pub(super) fn insight(writer: &mut Writer<'_>) -> Operation {
    Operation::new("insight", "Traffic insight: time series, hot keys, findings, the store")
        .parameters(writer.query::<NoQuery>())
        .answer(200, "As seen by this instance.", JSON, writer.schema::<Report>())
        .fails(&[400])
}

pub(super) fn violations(writer: &mut Writer<'_>) -> Operation {
    Operation::new("listViolations", "The audit log: who was denied")
        .parameters(writer.query::<ViolationsQuery>())
        .answer(200, "Newest first.", JSON, writer.schema::<ViolationsAnswer>())
        .fails(&[400, 503])
}

pub(super) fn actions(writer: &mut Writer<'_>) -> Operation {
    Operation::new("listActions", "The audit log of admin actions: blocks, grants, resets and others")
        .parameters(writer.query::<ActionsQuery>())
        .answer(200, "Newest first.", JSON, writer.schema::<ActionsAnswer>())
        .fails(&[400, 503])
}

pub(super) fn exceptions(writer: &mut Writer<'_>) -> Operation {
    Operation::new("listExceptions", "The exceptions for single keys")
        .parameters(writer.query::<NoQuery>())
        .answer(200, "The exceptions in force.", JSON, writer.schema::<ExceptionsAnswer>())
        .fails(&[400])
}

pub(super) fn put_exception(writer: &mut Writer<'_>) -> Operation {
    let made = "In force on this instance now, and within a second on others that share the store.";
    Operation::new("putException", "Block or allow a key, or grant it its own limit")
        .parameters(writer.query::<ExceptionQuery>())
        .body(writer.body::<ExceptionBody<'_>>())
        .answer(200, made, JSON, writer.schema::<ExceptionView>())
        .fails(&[400, 404, 408, 409, 413, 503])
}

pub(super) fn lift_exception(writer: &mut Writer<'_>) -> Operation {
    Operation::new("liftException", "End an exception")
        .parameters(bucket::<BucketChangeQuery>(writer))
        .answer(200, "The exception was lifted, or there was none.", JSON, writer.schema::<LiftedAnswer>())
        .fails(&[400, 503])
}

/// Parameters that name a bucket, with an existing rule as the example.
fn bucket<T: JsonSchema>(writer: &mut Writer<'_>) -> Vec<Value> {
    let mut parameters = writer.query::<T>();
    for parameter in &mut parameters {
        match parameter["name"].as_str() {
            Some("rule") => parameter["example"] = writer.facts.example_rule.as_str().into(),
            Some("key") => parameter["example"] = "42".into(),
            _ => {}
        }
    }
    parameters
}
