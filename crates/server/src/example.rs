//! A request that the rules in force apply to, to try the service with.

use std::collections::BTreeMap;

use tollkeeper::{Descriptor, Policy, Rule};
use tollkeeper_core::Condition;

/// Rules that are looked at; more only take time.
const MOST_RULES: usize = 50;

/// The attributes of a request that a rule applies to; of several rules the one that needs the most, because a rule for everybody
/// shows less. Empty if there is no such rule.
pub(crate) fn attributes(policy: &Policy) -> BTreeMap<String, String> {
    // Of several equals the last, which is the first in the file.
    let found = policy.rules().iter().take(MOST_RULES).rev().filter_map(|rule| of_rule(rule));
    found.max_by_key(BTreeMap::len).unwrap_or_default()
}

/// `None` if no such request was found: some conditions cannot be met by guessing.
fn of_rule(rule: &Rule) -> Option<BTreeMap<String, String>> {
    let mut attributes = BTreeMap::new();
    for condition in rule.when().iter().filter(|condition| !condition.may_lack()) {
        attributes.insert(condition.attribute().to_string(), value_for(condition));
    }
    for names in rule.needs() {
        let name = names.first()?;
        if !names.iter().any(|name| attributes.contains_key(name)) {
            attributes.insert(name.clone(), value_of(name).into());
        }
    }
    let request = Descriptor::from(attributes.clone());
    (rule.is_active() && rule.matches(&request) && rule.key_of(&request).is_ok()).then_some(attributes)
}

fn value_for(condition: &Condition) -> String {
    let usual = value_of(condition.attribute());
    let pattern = condition.patterns().first();
    match pattern.and_then(|pattern| pattern.exact()) {
        Some(exact) => exact.to_string(),
        None if pattern.is_some_and(|pattern| pattern.matches(usual)) => usual.to_string(),
        None => format!("{}example", pattern.map(|pattern| pattern.prefix()).unwrap_or_default()),
    }
}

fn value_of(attribute: &str) -> &'static str {
    match attribute {
        "ip" | "remote_address" => "203.0.113.9",
        "method" => "GET",
        "path" => "/",
        "host" => "example.com",
        "plan" => "free",
        _ => "42",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tollkeeper::RuleSpec;

    use super::*;

    fn example(rules: Value) -> Value {
        let specs: Vec<RuleSpec> = serde_json::from_value(rules).expect("rules");
        json!(attributes(&Policy::new(specs).expect("valid rules")))
    }

    /// The line to try after the start sent attributes that none of the user's rules knew, so nothing was limited.
    #[test]
    fn the_example_is_a_request_that_a_rule_applies_to() {
        let rule = |key: &str, when: Value| json!([{"name": "r", "key": key, "limit": "1/s", "when": when}]);
        for (rules, expected) in [
            (rule("{user_id}", json!({"plan": "pro"})), json!({"user_id": "42", "plan": "pro"})),
            (rule("{api_key|ip}", json!({"path": "/api/*"})), json!({"api_key": "42", "path": "/api/example"})),
            (rule("{ip}", json!({"ip": "203.0.113.0/24"})), json!({"ip": "203.0.113.9"})),
            (rule("{id}", json!({"path": "/users/{id}"})), json!({"path": "/users/example"})),
            (rule("{ip}", json!({"plan": "!free"})), json!({})),
            (rule("global", json!({"api_key": null})), json!({})),
            (json!([]), json!({})),
            (
                json!([
                    {"name": "all", "key": "global", "limit": "9/s"},
                    {"name": "user", "key": "{user_id}", "limit": "1/s", "when": {"plan": "free"}},
                    {"name": "login", "key": "{ip}", "limit": "1/s", "when": {"path": "/login"}},
                ]),
                json!({"user_id": "42", "plan": "free"}),
            ),
        ] {
            assert_eq!(example(rules.clone()), expected, "{rules}");
        }
    }
}
