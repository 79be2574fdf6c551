//! A configuration file while it is being read: its values, and where they are.

use std::path::Path;

use serde::de::DeserializeOwned;
use tollkeeper_core::{Policy, PolicyError, RuleSpec};

use super::located::{Located, Unreadable};
use super::problem::{ConfigError, Problem};

/// A YAML document that knows where each value is, so that every error has its line.
#[derive(Debug)]
pub struct Document<'t> {
    path: &'t Path,
    text: &'t str,
    located: Located,
}

impl<'t> Document<'t> {
    /// The text of a file.
    pub fn text_of(path: &Path) -> Result<String, ConfigError> {
        std::fs::read_to_string(path).map_err(|error| {
            let problem = match error.kind() {
                std::io::ErrorKind::NotFound => "there is no such file".to_string(),
                std::io::ErrorKind::InvalidData => "is not UTF-8 text; save it as UTF-8".to_string(),
                _ => format!("cannot be read: {error}"),
            };
            ConfigError { unreadable: true, problems: vec![Problem::new(path, String::new(), problem)] }
        })
    }

    /// Parses YAML (and so JSON) from `path`.
    pub fn parse(path: &'t Path, text: &'t str) -> Result<Document<'t>, ConfigError> {
        let located = Located::parse(text)
            .map_err(|(place, message)| ConfigError::of(Problem::new(path, String::new(), message).at(place, text)))?;
        Ok(Document { path, text, located })
    }

    /// The document without some top-level fields.
    #[must_use]
    pub fn without(mut self, fields: &[&str]) -> Document<'t> {
        self.located = self.located.without(fields);
        self
    }

    /// Reads the document into a type, or returns everything that cannot be read.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<T, ConfigError> {
        self.understand(|_: &mut T| (Vec::new(), Vec::new())).map(|(read, _)| read)
    }

    /// Reads the document into a type and validates its rules, or returns all errors in the file: what cannot be read,
    /// what `check` finds in the rest, and those of the rules that `check` returns.
    pub fn understand<T: DeserializeOwned>(
        &mut self,
        check: impl FnOnce(&mut T) -> (Vec<(String, String)>, Vec<RuleSpec>),
    ) -> Result<(T, Policy), ConfigError> {
        let (read, unreadable) = self.located.read();
        let mut problems: Vec<Problem> = unreadable
            .into_iter()
            .map(|Unreadable { field, message, place }| Problem::new(self.path, field, message).at(place, self.text))
            .collect();
        if let Some(mut read) = read {
            let (found, rules) = check(&mut read);
            match self.policy(found, rules) {
                Ok(policy) if problems.is_empty() => return Ok((read, policy)),
                Ok(_) => {}
                Err(more) => problems.extend(more),
            }
        }
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Err(ConfigError { unreadable: false, problems })
    }

    /// What is valid but probably a mistake: in each rule, and in other fields.
    pub fn warnings(&self, policy: &Policy, others: Vec<(String, String)>) -> Vec<Problem> {
        let of_rules = policy.rules().iter().enumerate().flat_map(|(index, rule)| {
            let place = move |field| format!("rules[{index}].{field}");
            rule.warnings().into_iter().map(move |warning| (place(warning.field), warning.problem))
        });
        of_rules.chain(others).map(|warning| self.problem(warning)).collect()
    }

    /// An error in a field.
    pub fn problem(&self, (field, problem): (String, String)) -> Problem {
        let place = self.located.place_of(&field);
        Problem::new(self.path, field, problem).at(place, self.text)
    }

    /// Validates the rules, or returns what was found before and what is wrong with them.
    fn policy(&self, found: Vec<(String, String)>, rules: Vec<RuleSpec>) -> Result<Policy, Vec<Problem>> {
        let mut problems: Vec<Problem> = found.into_iter().map(|one| self.problem(one)).collect();
        match Policy::new(rules) {
            Ok(policy) if problems.is_empty() => return Ok(policy),
            Ok(_) => {}
            Err(errors) => problems.extend(errors.into_iter().map(|PolicyError { index, name, error }| {
                let rule = name.map(|name| format!("rule `{name}`: ")).unwrap_or_default();
                self.problem((format!("rules[{index}].{}", error.field), format!("{rule}{}", error.problem)))
            })),
        }
        Err(problems)
    }
}
