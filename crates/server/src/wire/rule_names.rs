//! The names of the rules that a request selects.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// At least one name, and a bounded number of them: every rule that could apply is looked up among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleNames<'b>(Vec<Cow<'b, str>>);

/// How many names a request may give.
const MAX_NAMES: usize = 100;

impl RuleNames<'_> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    pub(crate) fn contains(&self, rule: &str) -> bool {
        self.iter().any(|name| name == rule)
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for RuleNames<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = RuleNames<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(r#"a list of rules, such as ["login"]"#)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RuleNames<'de>, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            if names.len() == MAX_NAMES {
                return Err(Error::custom(format_args!("has more than {MAX_NAMES} items; leave it out for all rules")));
            }
            names.push(name);
        }
        match names.is_empty() {
            true => Err(Error::custom("is empty; name a rule, or leave it out for all rules")),
            false => Ok(RuleNames(names)),
        }
    }
}

impl JsonSchema for RuleNames<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RuleNames".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": MAX_NAMES })
    }
}
