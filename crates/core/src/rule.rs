//! A rule: who is limited, by what key, and how. [`RuleSpec`] is what a file says, [`Rule`] what was understood.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::KeyTemplate;
use crate::limit::{Limit, parse_span};
use crate::pattern::Pattern;
use crate::quota::{Algorithm, Quota};
use crate::request::Request;
use crate::time::Span;

/// A rule as written. The field names are those of the rules file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Unique; appears in headers, metrics and the audit.
    pub name: String,
    /// A label such as user, endpoint, ip, tenant or global.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Attributes that must match: a value, a list of values, or globs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, OneOrMany>,
    /// One bucket per value of this template.
    pub key: String,
    /// `10/s`, `6,000/min`, `5/90s`; for `concurrency` a plain number.
    pub limit: Scalar,
    /// How much may pass at once after idling; the count of `limit` unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Scalar>,
    /// How requests are counted.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// For `concurrency`: how long a slot is kept that nobody releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// A number, or the name of the attribute that carries it.
    #[serde(default = "Scalar::one")]
    pub cost: Scalar,
    /// `enforce` or `shadow`.
    #[serde(default)]
    pub mode: Enforcement,
    /// What to answer when the store cannot: `local`, `open` or `closed`.
    #[serde(default)]
    pub on_store_failure: FailurePolicy,
    /// `false` switches the rule off.
    #[serde(default = "yes")]
    pub active: bool,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An active rule without name, key and limit, to be completed with `..RuleSpec::default()`.
impl Default for RuleSpec {
    fn default() -> Self {
        RuleSpec {
            name: String::new(),
            scope: None,
            when: BTreeMap::new(),
            key: String::new(),
            limit: Scalar::default(),
            burst: None,
            algorithm: Algorithm::default(),
            hold: None,
            cost: Scalar::one(),
            mode: Enforcement::default(),
            on_store_failure: FailurePolicy::default(),
            active: yes(),
            description: None,
        }
    }
}

fn yes() -> bool {
    true
}

/// A number or a text, as YAML leaves it open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A whole number.
    Number(u64),
    /// Anything in quotes, or that is no number.
    Text(String),
}

impl Default for Scalar {
    fn default() -> Self {
        Scalar::Text(String::new())
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Scalar::Text(text.into())
    }
}

impl Scalar {
    fn one() -> Scalar {
        Scalar::Number(1)
    }

    fn to_text(&self) -> String {
        match self {
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }
}

/// A pattern or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One value or glob.
    One(MatchValue),
    /// Any of these.
    Many(Vec<MatchValue>),
}

/// A value to compare with: attributes are strings, so `200` and `true` are taken as their text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MatchValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Number(i64),
    /// A value or a glob.
    Text(String),
}

impl MatchValue {
    fn to_text(&self) -> String {
        match self {
            MatchValue::Bool(value) => value.to_string(),
            MatchValue::Number(value) => value.to_string(),
            MatchValue::Text(value) => value.clone(),
        }
    }
}

/// Whether a rule may deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// It denies.
    #[default]
    Enforce,
    /// It counts and reports, and never denies.
    Shadow,
}

/// What a rule answers when the store cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailurePolicy {
    /// Decide in this process.
    #[default]
    Local,
    /// Let it pass.
    Open,
    /// Let nothing pass.
    Closed,
}

/// What a request costs a rule, beside the request's own cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for every request.
    Fixed(u32),
    /// Carried by an attribute of the request; 1 when it has none.
    Attribute(String),
}

/// One attribute and what it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The attribute's name.
    pub attribute: String,
    /// Any of these.
    pub patterns: Vec<Pattern>,
}

/// A rule that was understood: everything in it is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Unique among the rules.
    pub name: Arc<str>,
    /// A label.
    pub scope: Option<String>,
    /// All of these must hold.
    pub when: Vec<Condition>,
    /// Which bucket.
    pub key: KeyTemplate,
    /// How much.
    pub quota: Quota,
    /// What each request costs.
    pub cost: Cost,
    /// Whether it may deny.
    pub mode: Enforcement,
    /// What to answer without a store.
    pub on_store_failure: FailurePolicy,
    /// Switched on.
    pub active: bool,
    /// As written, for showing and saving.
    pub spec: RuleSpec,
}

/// What is wrong with a rule, and in which field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RuleError {
    /// The field of the rules file, such as `limit` or `when.path`.
    pub field: String,
    /// What is wrong with it and what to do.
    pub problem: String,
}

impl RuleError {
    fn new(field: impl Into<String>, problem: impl ToString) -> Self {
        RuleError { field: field.into(), problem: problem.to_string() }
    }
}

impl Rule {
    /// How long a slot is kept when the rule does not say.
    pub const DEFAULT_HOLD: Span = Span::from_secs(60);
    const MAX_NAME: usize = 100;

    /// Understands a rule, or names the field that is wrong.
    pub fn new(spec: RuleSpec) -> Result<Rule, RuleError> {
        check_name(&spec.name)?;
        let when =
            spec.when.iter().map(|(attribute, value)| condition(attribute, value)).collect::<Result<Vec<_>, _>>()?;
        let key = KeyTemplate::new(&spec.key).map_err(|error| RuleError::new("key", error))?;
        let quota = quota(&spec)?;
        let cost = cost(&spec.cost)?;
        Ok(Rule {
            name: spec.name.as_str().into(),
            scope: spec.scope.clone(),
            when,
            key,
            quota,
            cost,
            mode: spec.mode,
            on_store_failure: spec.on_store_failure,
            active: spec.active,
            spec,
        })
    }

    /// Whether the rule may deny.
    pub fn is_enforced(&self) -> bool {
        self.mode == Enforcement::Enforce
    }

    /// Whether every condition holds.
    pub fn matches(&self, request: &impl Request) -> bool {
        self.when.iter().all(|condition| {
            request
                .attribute(&condition.attribute)
                .is_some_and(|value| condition.patterns.iter().any(|pattern| pattern.matches(&value)))
        })
    }

    /// The request's cost times the rule's. A product too large to count can never pass, and stays that.
    pub fn cost_of(&self, request: &impl Request) -> Result<u32, CostError> {
        let own = match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Attribute(attribute) => match request.attribute(attribute) {
                None => 1,
                Some(value) => {
                    value.trim().parse::<u64>().map(|cost| cost.try_into().unwrap_or(u32::MAX)).map_err(|_| {
                        CostError { rule: self.name.clone(), attribute: attribute.clone(), value: value.into_owned() }
                    })?
                }
            },
        };
        Ok(own.saturating_mul(request.cost()))
    }

    /// Things that are allowed and probably not meant.
    pub fn warnings(&self) -> Vec<RuleError> {
        let mut warnings = Vec::new();
        let algorithm = self.quota.algorithm();
        if self.spec.burst.is_some() && !algorithm.has_burst() {
            warnings.push(RuleError::new("burst", format!("has no meaning for {algorithm}; remove it")));
        }
        if self.spec.hold.is_some() && algorithm != Algorithm::Concurrency {
            warnings.push(RuleError::new("hold", format!("has no meaning for {algorithm}; remove it")));
        }
        if self.cost == Cost::Fixed(0) {
            warnings.push(RuleError::new("cost", "0 charges nothing, so this rule never denies"));
        }
        warnings
    }
}

/// An attribute that should carry a cost and does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute `{attribute}` is the cost of rule `{rule}` and must be a whole number, not {value:?}")]
pub struct CostError {
    /// The rule that asked for it.
    pub rule: Arc<str>,
    /// The attribute's name.
    pub attribute: String,
    /// What it held.
    pub value: String,
}

/// Names go into header fields, metrics and keys, so they keep to characters that need no escaping anywhere.
fn check_name(name: &str) -> Result<(), RuleError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@');
    if name.is_empty() {
        return Err(RuleError::new("name", "is empty; give the rule a name such as free-user"));
    }
    if name.len() > Rule::MAX_NAME {
        return Err(RuleError::new(
            "name",
            format!("{} characters are too many (at most {})", name.len(), Rule::MAX_NAME),
        ));
    }
    match name.chars().find(|c| !fine(*c)) {
        Some(bad) => Err(RuleError::new(
            "name",
            format!(
                "{name:?} contains {bad:?}; use letters, digits and - _ . : / @ (names appear in headers and metrics)"
            ),
        )),
        None => Ok(()),
    }
}

fn condition(attribute: &str, value: &OneOrMany) -> Result<Condition, RuleError> {
    let values: Vec<String> = match value {
        OneOrMany::One(value) => vec![value.to_text()],
        OneOrMany::Many(values) => values.iter().map(MatchValue::to_text).collect(),
    };
    if values.is_empty() {
        let field = format!("when.{attribute}");
        return Err(RuleError::new(field, "an empty list matches nothing; name a value, or remove the condition"));
    }
    Ok(Condition { attribute: attribute.to_string(), patterns: values.iter().map(|text| Pattern::new(text)).collect() })
}

fn quota(spec: &RuleSpec) -> Result<Quota, RuleError> {
    let text = spec.limit.to_text();
    let limit: Limit = text.parse().map_err(|error| RuleError::new("limit", error))?;
    let hold = spec.hold.as_deref().map(parse_span).transpose().map_err(|error| RuleError::new("hold", error))?;
    let period = match (spec.algorithm, limit.period) {
        (Algorithm::Concurrency, period) => hold.or(period).unwrap_or(Rule::DEFAULT_HOLD),
        (_, Some(period)) => period,
        (_, None) => {
            let problem = format!("{text:?} says how many but not per what; write for example {text}/s or {text}/min");
            return Err(RuleError::new("limit", problem));
        }
    };
    let mut builder = Quota::per(limit.count, period).algorithm(spec.algorithm);
    if let Some(burst) = &spec.burst {
        let burst = crate::limit::parse_count(&burst.to_text()).map_err(|error| RuleError::new("burst", error))?;
        builder = builder.burst(burst);
    }
    builder.build().map_err(|error| RuleError::new(error.field(), error))
}

fn cost(cost: &Scalar) -> Result<Cost, RuleError> {
    match cost {
        Scalar::Number(number) => match u32::try_from(*number) {
            Ok(cost) if cost <= Quota::MAX_COUNT => Ok(Cost::Fixed(cost)),
            _ => Err(RuleError::new("cost", format!("{number} is too large (at most {})", Quota::MAX_COUNT))),
        },
        Scalar::Text(text) if text.trim().is_empty() => {
            Err(RuleError::new("cost", "is empty; write a number, or the name of the attribute that carries it"))
        }
        Scalar::Text(text) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            Err(RuleError::new("cost", format!("{text:?} is neither a whole number nor the name of an attribute")))
        }
        Scalar::Text(attribute) => Ok(Cost::Attribute(attribute.clone())),
    }
}
