//! Rules from YAML text, as in the `rules` of a configuration file.

use serde::Deserialize;
use tollkeeper_core::{Policy, PolicyErrors, RuleSpec};

/// Why a text could not be turned into rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum YamlError {
    /// Not YAML, or not rules. The message has the line and the column.
    #[error("{0}")]
    Unreadable(String),
    /// Read, but at least one rule is invalid.
    #[error(transparent)]
    Invalid(#[from] PolicyErrors),
}

/// The part of a configuration file that a library needs; a service reads the rest.
#[derive(Deserialize)]
struct RulesFile {
    rules: Vec<RuleSpec>,
}

/// Reads the `rules` of a configuration file. Other top-level fields, which are for the service, are ignored.
///
/// ```
/// use tollkeeper::{Limiter, MemoryStore};
///
/// let policy = tollkeeper::policy_from_yaml(
///     "
///     rules:
///       - { name: login,    key: \"{ip}\",      limit: 5/min, algorithm: sliding_window_log, when: { path: /login } }
///       - { name: per-user, key: \"{user_id}\", limit: 10/s, burst: 50 }
///     ",
/// )?;
/// let limiter = Limiter::new(policy, MemoryStore::new());
/// # Ok::<(), tollkeeper::YamlError>(())
/// ```
pub fn policy_from_yaml(text: &str) -> Result<Policy, YamlError> {
    let file: RulesFile =
        serde_saphyr::from_str(text).map_err(|error| YamlError::Unreadable(error.without_snippet().to_string()))?;
    Ok(Policy::new(file.rules)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cost: *c` once became an attribute named `*c`, so the second rule cost 1: aliases must mean what YAML says.
    #[test]
    fn aliases_mean_what_yaml_says() {
        let policy = policy_from_yaml(
            "rules:\n  - { name: a, key: global, limit: 10/s, cost: &c 3 }\n  - { name: b, key: global, limit: 10/s, cost: *c }",
        )
        .expect("valid");
        assert_eq!(policy.rules()[0].cost(), policy.rules()[1].cost());
    }

    #[test]
    fn errors_say_where_and_what() {
        let error = |text: &str| policy_from_yaml(text).expect_err(text).to_string();
        let unknown = error("rules:\n  - { name: a, key: global, limit: 10/s, brust: 3 }");
        assert!(unknown.contains("brust") && unknown.contains("line 2"), "{unknown}");
        let invalid = error("rules:\n  - { name: a, key: global, limit: ten/s }");
        assert!(invalid.starts_with("rule `a`: limit: \"ten/s\""), "{invalid}");
    }
}
