//! Where settings come from: the file that the service reads, or code, as JSON of the same shape. The library reads both.

use std::path::Path;

use tollkeeper::RuleSpec;
use tollkeeper::file::{self, ConfigError, Invalid, Loaded, Settings};
use tollkeeper::strict;

use crate::error::{Error, Kind};

/// What errors show as an example.
const RULE: &str = r#"{"name": "login", "key": "{ip}", "limit": "5/min"}"#;

/// From code: JSON in the shape of the file.
pub(crate) fn from_json(text: &str) -> Result<Settings, Error> {
    proven(strict::json(text.as_bytes(), RULE)?)
}

/// The settings of a file.
pub(crate) struct Given {
    pub(crate) settings: Settings,
    /// What is valid but probably a mistake, with its place.
    pub(crate) warnings: Vec<String>,
}

/// From a file; `store` overrides the URL in it.
pub(crate) fn from_file(path: &Path, store: Option<&str>) -> Result<Given, Error> {
    let Loaded { mut settings, warnings, .. } = file::load(path)?;
    if let Some(url) = store {
        settings.store.url = url.into();
        settings = proven(settings)?;
    }
    Ok(Given { settings, warnings: warnings.iter().map(ToString::to_string).collect() })
}

/// What is valid but probably a mistake in settings from code.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let rules = settings.rules.iter().filter_map(|spec| spec.clone().build().ok());
    let of_rules = rules.flat_map(|rule| {
        let name = rule.name().to_string();
        rule.warnings().into_iter().map(move |warning| format!("rule `{name}`: {}: {}", warning.field, warning.problem))
    });
    of_rules.chain(settings.warnings().into_iter().map(|(field, problem)| format!("{field}: {problem}"))).collect()
}

/// Rules from code: a JSON list.
pub(crate) fn rules_from_json(text: &str) -> Result<Vec<RuleSpec>, Error> {
    #[derive(serde::Deserialize)]
    struct Rules {
        rules: Vec<RuleSpec>,
    }
    let Rules { rules } = strict::json(format!("{{\"rules\": {text}}}").as_bytes(), RULE)?;
    Ok(rules)
}

fn proven(settings: Settings) -> Result<Settings, Error> {
    match settings.problems().into_iter().next() {
        Some((field, problem)) => Err(Invalid::new(field, problem).into()),
        None => Ok(settings),
    }
}

/// A rule is at fault, or something else.
fn kind_of(field: &str) -> Kind {
    if field.starts_with("rules[") || field == "rules" { Kind::Rule } else { Kind::Config }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Error {
        Error::new(kind_of(&invalid.field), invalid)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Error {
        let is_rules = error.problems.iter().all(|problem| kind_of(&problem.field) == Kind::Rule);
        Error::new(if is_rules { Kind::Rule } else { Kind::Config }, error)
    }
}
