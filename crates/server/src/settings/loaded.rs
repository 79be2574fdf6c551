//! A configuration file that was read and validated.

use std::path::Path;

use tollkeeper::Policy;

use super::problems::problems;
use super::warnings::warnings;
use crate::config::{Config, ConfigError, DEFAULT, Document, Problem};

/// A configuration file whose rules are valid.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) policy: Policy,
    /// Settings that are valid but probably mistakes.
    pub(crate) warnings: Vec<Problem>,
}

impl Loaded {
    /// Changes the configuration by flags. Warnings that they settle are dropped, and those that they cause are added, with the
    /// name of the field as the user gave it.
    pub(crate) fn override_by(&mut self, change: impl FnOnce(&mut Config), given: impl Fn(&str) -> String) {
        let before = warnings(&self.config);
        change(&mut self.config);
        let after = warnings(&self.config);
        self.warnings.retain(|known| {
            let is_it = |(field, problem): &(String, String)| *field == known.field && *problem == known.problem;
            after.iter().any(is_it) || !before.iter().any(is_it)
        });
        for (field, problem) in after.into_iter().filter(|warning| !before.contains(warning)) {
            self.warnings.push(Problem::new(Path::new("flags"), given(&field), problem));
        }
    }
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
    let mut document = Document::parse(path, text)?;
    let check = |config: &mut Config| {
        change(config);
        (problems(config), config.rules.clone())
    };
    let (config, policy) = document.understand(check)?;
    let warnings = document.warnings(&policy, warnings(&config));
    Ok(Loaded { config, policy, warnings })
}

/// The text of a file.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    Document::text_of(path)
}

#[cfg(test)]
mod tests;
