//! The attributes of a request, as callers send them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::strict::quoted;

/// A flat map of names to strings, borrowed from the body if possible. Sorted by name, so that lookups are cheap
/// however many were sent, and no map has to be built for a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes<'b>(Vec<(Cow<'b, str>, Cow<'b, str>)>);

impl<'b> Attributes<'b> {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?;
        Some(&self.0[found].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl JsonSchema for Attributes<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, String>::json_schema(generator)
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Attributes<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributesVisitor)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = Attributes<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"user_id": "42"}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Attributes<'de>, A::Error> {
        let mut attributes: Vec<(Cow<'de, str>, Cow<'de, str>)> = Vec::new();
        while let Some(pair) = object.next_entry_seed(Text::Name, Text::Value)? {
            attributes.push(pair);
        }
        attributes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        match attributes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(twice) => Err(Error::custom(format_args!("duplicate field `{}`", twice[0].0))),
            None => Ok(Attributes(attributes)),
        }
    }
}

/// A string, borrowed if possible.
enum Text {
    Name,
    Value,
}

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        match self {
            Text::Name => deserializer.deserialize_str(self),
            // Any type, so that an error can say how to write it as a string.
            Text::Value => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_string()))
    }

    fn visit_unit<E: Error>(self) -> Result<Cow<'de, str>, E> {
        Err(E::custom("must be a string, not null; leave the attribute out"))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Cow<'de, str>, E> {
        Err(unquoted(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Cow<'de, str>, E> {
        Err(unquoted(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Cow<'de, str>, E> {
        Err(unquoted(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Cow<'de, str>, E> {
        Err(unquoted(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Cow<'de, str>, A::Error> {
        Err(Error::custom("must be a string, not a list; attributes are a flat map of names to strings"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Cow<'de, str>, A::Error> {
        Err(Error::custom("must be a string, not an object; attributes are a flat map of names to strings"))
    }
}

fn unquoted<E: Error>(value: impl fmt::Display) -> E {
    let text = value.to_string();
    E::custom(format_args!("must be a string, not {text}; quote it: {}", quoted(&text)))
}
