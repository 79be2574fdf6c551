//! A configuration file that was read and validated.

use std::path::Path;

use tollkeeper::{Policy, PolicyError};

use super::problems::problems;
use super::warnings::warnings;
use crate::config::located::Located;
use crate::config::{Config, ConfigError, DEFAULT, Problem};

/// A configuration file whose rules are valid.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) policy: Policy,
    /// Settings that are valid but probably mistakes.
    pub(crate) warnings: Vec<Problem>,
}

/// Reads a file.
pub(crate) fn load(path: &Path) -> Result<Loaded, ConfigError> {
    parse(path, &read_text(path)?)
}

/// The embedded default.
pub(crate) fn load_embedded() -> Result<Loaded, ConfigError> {
    parse(Path::new("(built-in default)"), DEFAULT)
}

/// Reads a text that came from `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Loaded, ConfigError> {
    parse_as(path, text, |_| {})
}

/// Reads a file for its rules only, even if a service with that file would take its rules from elsewhere.
pub(crate) fn load_rules(path: &Path) -> Result<Loaded, ConfigError> {
    parse_as(path, &read_text(path)?, |config| (config.rules_from, config.rules_snapshot) = (None, None))
}

fn parse_as(path: &Path, text: &str, change: impl FnOnce(&mut Config)) -> Result<Loaded, ConfigError> {
    let located = Located::parse(text)
        .map_err(|(place, message)| ConfigError::of(Problem::new(path, String::new(), message).at(place, text)))?;
    let mut config: Config = located.read().map_err(|unreadable| {
        ConfigError::of(Problem::new(path, unreadable.field, unreadable.message).at(unreadable.place, text))
    })?;
    change(&mut config);
    let problem_at = |field: String, problem: String| {
        let place = located.place_of(&field);
        Problem::new(path, field, problem).at(place, text)
    };
    let mut found: Vec<Problem> =
        problems(&config).into_iter().map(|(field, problem)| problem_at(field, problem)).collect();
    match Policy::new(config.rules.clone()) {
        Ok(policy) if found.is_empty() => {
            let rules = policy.rules().iter().enumerate();
            let mut told: Vec<Problem> = rules
                .flat_map(|(index, rule)| rule.warnings().into_iter().map(move |warning| (index, warning)))
                .map(|(index, warning)| problem_at(format!("rules[{index}].{}", warning.field), warning.problem))
                .collect();
            told.extend(warnings(&config).into_iter().map(|(field, problem)| problem_at(field, problem)));
            Ok(Loaded { config, policy, warnings: told })
        }
        Ok(_) => Err(ConfigError { unreadable: false, problems: found }),
        Err(errors) => {
            found.extend(errors.into_iter().map(|PolicyError { index, name, error }| {
                let rule = name.map(|name| format!("rule `{name}`: ")).unwrap_or_default();
                problem_at(format!("rules[{index}].{}", error.field), format!("{rule}{}", error.problem))
            }));
            Err(ConfigError { unreadable: false, problems: found })
        }
    }
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        let problem = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_string(),
            std::io::ErrorKind::InvalidData => "is not UTF-8 text; save it as UTF-8".to_string(),
            _ => format!("cannot be read: {error}"),
        };
        ConfigError { unreadable: true, problems: vec![Problem::new(path, String::new(), problem)] }
    })
}

#[cfg(test)]
mod tests;
