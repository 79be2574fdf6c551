use std::collections::BTreeSet;
use std::sync::Arc;

use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::{Limiter, MemoryStore, Policy};

use super::*;
use crate::front::http::ROUTES;
use crate::insight::Insight;

fn described(admin: Admin) -> Value {
    document(&Service {
        limiter: Arc::new(Limiter::new(Policy::default(), MemoryStore::with(10, tollkeeper::Clock::system()))),
        metrics: crate::front::metrics().into(),
        alerts: Default::default(),
        insight: Insight::new(Default::default(), tollkeeper::Timestamp::default()),
        identity: Identity::new(),
        answer: AnswerStyle { deny_status: http::StatusCode::FORBIDDEN, ..AnswerStyle::default() },
        admin,
        rules: None,
        tracer: Default::default(),
    })
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn every_route_is_described() {
    let document = described(Admin::Open);
    let mut routes: BTreeSet<&str> = ROUTES.into_iter().collect();
    routes.insert("/v1/authorize/{path}");
    assert_eq!(keys(&document["paths"]), routes);
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = described(Admin::Open);
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 10, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn a_token_is_described_only_where_one_is_asked_for() {
    let open = described(Admin::Open);
    assert!(!open.to_string().contains("\"security"));
    let guarded = described(Admin::Token("sesame".into()));
    assert!(guarded["paths"]["/metrics"]["get"]["responses"]["401"].is_object());
    assert!(guarded["paths"]["/metrics"]["get"]["security"].is_array());
    assert!(guarded["paths"]["/v1/check"]["post"]["security"].is_null());
    assert!(!guarded.to_string().contains("sesame"));
}

#[test]
fn the_status_of_a_denial_is_the_configured_one() {
    let responses = &described(Admin::Open)["paths"]["/v1/authorize"]["get"]["responses"];
    assert_eq!(keys(responses), BTreeSet::from(["200", "400", "403", "503"]));
}
