//! `--limit "100/min burst 20 by header.x-api-key|ip"`: a rule in one line, with keys from HTTP requests.

use std::collections::BTreeMap;

use tollkeeper::http::AttributeSource;
use tollkeeper::{RuleSpec, Shorthand};

use crate::tls::CLIENT_ATTRIBUTE;

/// Whether the limit applies only to clients with a certificate.
pub(super) fn is_by_certificate_alone(limit: &Shorthand) -> bool {
    let by = limit.by();
    !by.is_empty() && by.iter().all(|key| *key == CLIENT_ATTRIBUTE)
}

/// The rule for the flag, under this name. `identified` are the attributes that the configuration maps.
pub(super) fn rule(limit: &Shorthand, name: String, identified: &BTreeMap<String, String>) -> Result<RuleSpec, String> {
    for key in limit.by() {
        if key != CLIENT_ATTRIBUTE
            && !identified.contains_key(key)
            && let Err(problem) = key.parse::<AttributeSource>()
        {
            return Err(format!("by: {problem}; `global` and the attributes under `identify` work too"));
        }
    }
    Ok(limit.rule(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_of(text: &str, identified: &BTreeMap<String, String>) -> Result<RuleSpec, String> {
        rule(&text.parse().expect(text), "limit".into(), identified)
    }

    #[test]
    fn names_that_the_configuration_maps_are_keys_too() {
        let mapped = BTreeMap::from([("user_id".to_string(), "header.x-user".to_string())]);
        assert_eq!(rule_of("10/s by user_id|ip", &mapped).expect("mapped").key, "{user_id|ip}");
        rule_of("10/s by user_id|ip", &BTreeMap::new()).expect_err("not mapped");
        let error = rule_of("10/s by header.", &BTreeMap::new()).expect_err("no name");
        assert!(error.starts_with("by: \"header.\" is"), "{error}");
    }
}
