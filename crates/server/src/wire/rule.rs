//! Rules in requests and answers, and the result of a change.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollkeeper::{Rule, RuleSpec};

use crate::rules::Version;
use crate::strict::{self, Invalid, Tree, quoted};

/// The schema of a rule in a request: fields with a default are optional, and so is the name if the path has it.
pub(crate) fn rule_schema(generator: &mut SchemaGenerator, required: &[&str]) -> Schema {
    let mut schema = RuleSpec::json_schema(generator);
    schema.insert("required".into(), json!(required));
    schema
}

/// The rules in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Rules")]
pub(crate) struct RulesAnswer<'r> {
    /// In the order of the rules file.
    pub(crate) rules: Vec<RuleView<'r>>,
    /// `file`, or `postgres`: only there can they be changed.
    #[schemars(extend("enum" = ["file", "postgres"]))]
    pub(crate) source: &'static str,
    /// The version in force, with Postgres.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub(crate) version: Option<i64>,
    /// Why newer rules are not in force, if there are any or that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) problem: Option<String>,
}

/// A rule as written, with its parsed quota.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RuleInForce")]
pub(crate) struct RuleView<'r> {
    #[serde(flatten)]
    spec: &'r RuleSpec,
    /// Algorithm and numbers, for people.
    quota: String,
}

impl<'r> From<&'r Rule> for RuleView<'r> {
    fn from(rule: &'r Rule) -> Self {
        RuleView { spec: rule.spec(), quota: rule.quota().to_string() }
    }
}

/// The result of a change of the rules.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RulesChanged")]
pub(crate) struct EditAnswer {
    /// The version of the rules after it.
    pub(crate) version: i64,
    /// False when the rules were already like that.
    pub(crate) changed: bool,
    /// What is valid in the rule but probably a mistake, with the fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<WarningAnswer>,
}

/// A field that is probably a mistake.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RuleWarning")]
pub(crate) struct WarningAnswer {
    /// Such as `when.path`.
    field: String,
    /// What the rule does as written, and how to write what was probably meant.
    problem: String,
}

impl WarningAnswer {
    /// Those of a rule.
    pub(crate) fn of(rule: &Rule) -> Vec<WarningAnswer> {
        let warnings = rule.warnings().into_iter();
        warnings.map(|warning| WarningAnswer { field: warning.field, problem: warning.problem }).collect()
    }
}

/// Versions of the rules.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RulesHistory")]
pub(crate) struct HistoryAnswer {
    /// Newest first.
    pub(crate) versions: Vec<Version>,
}

/// Which version to restore.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RollbackRequest")]
pub(crate) struct Rollback {
    /// A version of the history.
    #[schemars(range(min = 1))]
    pub(crate) version: i64,
}

/// Parses a rule whose name is in the path, or else in the body.
pub(crate) fn parse_rule(body: &[u8], name: Option<&str>) -> Result<Rule, Invalid> {
    let example = r#"{"name": "free-user", "key": "{user_id}", "limit": "10/s"}"#;
    let Tree(mut value) = strict::json(body, example)?;
    if let (Some(name), Some(fields)) = (name, value.as_object_mut()) {
        match fields.get("name") {
            None => drop(fields.insert("name".into(), name.into())),
            Some(Value::String(other)) if other != name => {
                let problem = format!("{} is not the name in the path, {}; leave it out", quoted(other), quoted(name));
                return Err(Invalid::new("name", problem));
            }
            _ => {}
        }
    }
    let spec: RuleSpec = strict::value(value, &format!("send for example {example}"))?;
    spec.build().map_err(|errors| {
        let mut errors = errors.into_iter();
        let first = errors.next().map(|error| (error.field, error.problem)).unwrap_or_default();
        let rest: String = errors.map(|error| format!("; {error}")).collect();
        Invalid::new(first.0, first.1 + &rest)
    })
}

/// Reads which version to restore.
pub(crate) fn parse_rollback(body: &[u8]) -> Result<Rollback, Invalid> {
    let example = r#"{"version": 12}"#;
    let Tree(value) = strict::json(body, example)?;
    strict::value(value, &format!("send for example {example}"))
}
