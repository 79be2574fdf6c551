//! The fields of a rule for its form, derived from the schema of [`RuleSpec`]: a new field appears in the form
//! automatically.

use serde_json::{Value, json};
use tollkeeper::RuleSpec;

/// Every field: its name, how it is entered, and its description.
pub(super) fn rule_fields() -> Value {
    let schema = schemars::schema_for!(RuleSpec).to_value();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let field = |(name, property): (String, Value)| {
        let (kind, choices) = input(&schema, &property);
        json!({
            "name": name,
            "kind": kind,
            "choices": choices,
            "default": default(&name, kind, &property["default"]),
            "required": required.contains(&Value::from(name.as_str())),
            "description": property["description"],
        })
    };
    properties.into_iter().map(field).collect()
}

/// The value of a field that is not given. A switch that is on by default and left out when it is on has no default in
/// the schema.
fn default(name: &str, kind: &str, described: &Value) -> Value {
    if !described.is_null() || kind != "switch" {
        return described.clone();
    }
    let off = json!({ "name": "a", "key": "global", "limit": "1/s", name: false });
    let written = serde_json::from_value::<RuleSpec>(off).and_then(serde_json::to_value);
    json!(written.is_ok_and(|written| written[name] == false))
}

/// How a value is entered, and the choices if there are only a few.
fn input(root: &Value, schema: &Value) -> (&'static str, Vec<Value>) {
    let schema = resolved(root, schema);
    let choices: Vec<Value> = match (&schema["oneOf"], &schema["enum"]) {
        (Value::Array(each), _) => each.iter().flat_map(names).collect(),
        (_, Value::Array(values)) => values.clone(),
        _ => Vec::new(),
    };
    match types(root, schema).as_slice() {
        _ if !choices.is_empty() => ("choice", choices),
        ["boolean"] => ("switch", choices),
        ["string"] => ("text", choices),
        all if all.iter().all(|kind| ["string", "integer"].contains(kind)) => ("scalar", choices),
        _ => ("json", choices),
    }
}

/// The values of one variant of an enum.
fn names(variant: &Value) -> Vec<Value> {
    match (&variant["const"], &variant["enum"]) {
        (Value::Null, Value::Array(several)) => several.clone(),
        (Value::Null, _) => Vec::new(),
        (one, _) => vec![one.clone()],
    }
}

/// The types that a value may have, except null.
fn types<'s>(root: &'s Value, schema: &'s Value) -> Vec<&'s str> {
    let schema = resolved(root, schema);
    let mut types: Vec<&str> = match (&schema["type"], &schema["anyOf"]) {
        (Value::String(one), _) => vec![one],
        (Value::Array(several), _) => several.iter().filter_map(Value::as_str).collect(),
        (_, Value::Array(each)) => each.iter().flat_map(|one| types(root, one)).collect(),
        _ => vec!["anything"],
    };
    types.retain(|kind| *kind != "null");
    types
}

fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let reference = schema["$ref"].as_str().and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    reference.unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_rule_is_in_the_form_in_the_way_that_fits_it() {
        let fields = rule_fields();
        let kind = |name: &str| {
            let field = fields.as_array().expect("a list").iter().find(|field| field["name"] == name);
            field.unwrap_or_else(|| panic!("{name} is missing"))["kind"].as_str().unwrap_or_default().to_string()
        };
        for (name, expected) in [
            ("name", "text"),
            ("scope", "text"),
            ("when", "json"),
            ("key", "text"),
            ("limit", "scalar"),
            ("burst", "scalar"),
            ("algorithm", "choice"),
            ("hold", "text"),
            ("lease", "scalar"),
            ("cost", "json"),
            ("mode", "choice"),
            ("on_store_failure", "choice"),
            ("deny", "json"),
            ("active", "switch"),
            ("description", "text"),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
        let mode = fields.as_array().expect("a list").iter().find(|field| field["name"] == "mode").expect("mode");
        assert_eq!(mode["default"], "enforce");
        assert!(mode["choices"].as_array().is_some_and(|choices| choices.contains(&"shadow".into())));
        // The switch was off in the form, and saving any change took the rule out of the limit headers.
        for switch in ["active", "headers"] {
            let field = fields.as_array().expect("a list").iter().find(|field| field["name"] == switch);
            assert_eq!(field.map(|field| &field["default"]), Some(&json!(true)), "{switch}");
        }
    }

    /// A label in the form for a field that was renamed would silently do nothing.
    #[test]
    fn every_label_is_of_a_field() {
        let form = include_str!("rule_form.js");
        let labels =
            form.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": { label: ")).map(|(name, _)| name);
        let fields = rule_fields();
        let known: Vec<&str> =
            fields.as_array().expect("a list").iter().filter_map(|field| field["name"].as_str()).collect();
        let mut count = 0;
        for label in labels {
            assert!(known.contains(&label), "{label} is not a field of a rule");
            count += 1;
        }
        assert!(count > 5, "the labels were not found");
    }
}
