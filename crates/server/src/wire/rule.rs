//! Rules as they are sent to be kept, and what became of them.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tollkeeper::{Rule, RuleSpec};

use super::Invalid;
use super::strict::quoted;
use crate::explain::explain;
use crate::rules::Version;

/// The schema of a rule that is sent: what has a default need not be, nor the name where the path has it.
pub(crate) fn rule_schema(generator: &mut SchemaGenerator, required: &[&str]) -> Schema {
    let mut schema = RuleSpec::json_schema(generator);
    schema.insert("required".into(), json!(required));
    schema
}

/// What a change of the rules did.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RulesChanged")]
pub(crate) struct EditAnswer {
    /// The version of the rules after it.
    pub(crate) version: i64,
    /// False when the rules were so already.
    pub(crate) changed: bool,
}

/// Versions of the rules.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RulesHistory")]
pub(crate) struct HistoryAnswer {
    /// Newest first.
    pub(crate) versions: Vec<Version>,
}

/// Which version to have again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RollbackRequest")]
pub(crate) struct Rollback {
    /// A version of the history.
    #[schemars(range(min = 1))]
    pub(crate) version: i64,
}

/// Reads a rule whose name is in the path, or in the body alone.
pub(crate) fn parse_rule(body: &[u8], name: Option<&str>) -> Result<Rule, Invalid> {
    let example = r#"{"name": "free-user", "key": "{user_id}", "limit": "10/s"}"#;
    let mut value = parse(body, example)?;
    if let (Some(name), Some(fields)) = (name, value.as_object_mut()) {
        match fields.get("name") {
            None => drop(fields.insert("name".into(), name.into())),
            Some(Value::String(other)) if other != name => {
                let problem = format!("{} is not the name in the path, {}; leave it out", quoted(other), quoted(name));
                return Err(Invalid { field: "name".into(), problem });
            }
            _ => {}
        }
    }
    let spec: RuleSpec = understand(value, example)?;
    spec.build().map_err(|errors| {
        let mut errors = errors.into_iter();
        let first = errors.next().map(|error| (error.field, error.problem)).unwrap_or_default();
        let rest: String = errors.map(|error| format!("; {error}")).collect();
        Invalid { field: first.0, problem: first.1 + &rest }
    })
}

/// Reads which version to have again.
pub(crate) fn parse_rollback(body: &[u8]) -> Result<Rollback, Invalid> {
    let example = r#"{"version": 12}"#;
    understand(parse(body, example)?, example)
}

fn understand<T: de::DeserializeOwned>(value: Value, example: &str) -> Result<T, Invalid> {
    if !value.is_object() {
        return Err(whole(format!("an object such as {example} is wanted here")));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { String::new() } else { path };
        Invalid { field, problem: explain(&error.into_inner().to_string()) }
    })
}

fn parse(body: &[u8], example: &str) -> Result<Value, Invalid> {
    if body.trim_ascii().is_empty() {
        return Err(whole(format!("there is nothing here; send for example {example}")));
    }
    let unique: Unique = serde_json::from_slice(body)
        .map_err(|error| whole(format!("this is not JSON as it should be: {error}; send for example {example}")))?;
    Ok(unique.0)
}

fn whole(problem: String) -> Invalid {
    Invalid { field: String::new(), problem }
}

/// JSON in which no name is given twice: readers differ on which of two counts. `1.0` is the whole number that it is.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        const EXACT: f64 = (1u64 << 53) as f64;
        let is_whole = number.fract() == 0.0 && number.abs() < EXACT;
        Ok(if is_whole { (number as i64).into() } else { number.into() })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            let Unique(value) = object.next_value()?;
            if fields.contains_key(&name) {
                return Err(de::Error::custom(format!("{} is given twice; leave one out", quoted(&name))));
            }
            fields.insert(name, value);
        }
        Ok(fields.into())
    }
}
