use super::*;
use std::collections::BTreeSet;

fn described(guarded: bool) -> Value {
    let (guarded_decisions, guarded_metrics) = (guarded, guarded);
    document(&Facts { deny_status: 403, guarded_decisions, guarded_metrics, example_rule: "free-user".into() })
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
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
    let document = described(false);
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
    let (open, guarded) = (described(false), described(true));
    for (path, method) in [("/metrics", "get"), ("/v1/check", "post"), ("/v1/authorize", "get")] {
        assert!(open["paths"][path][method]["security"].is_null(), "{path}");
        assert!(guarded["paths"][path][method]["security"].is_array(), "{path}");
        assert!(guarded["paths"][path][method]["responses"]["401"].is_object(), "{path}");
    }
    for document in [&open, &guarded] {
        assert!(document["paths"]["/v1/rules"]["get"]["security"].is_array());
        assert!(document["paths"]["/"]["get"]["security"].is_null());
        assert!(document["paths"]["/v1/check"]["post"]["responses"]["403"].is_object());
    }
}

#[test]
fn the_status_of_a_denial_is_the_configured_one() {
    let responses = &described(false)["paths"]["/v1/authorize"]["get"]["responses"];
    assert_eq!(keys(responses), BTreeSet::from(["200", "400", "403", "503"]));
}
