//! Query strings, read into the same kind of types as bodies.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::de::value::{Error, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use tollkeeper::strict::{Invalid, shortened};

/// Reads the parameters of a query. The hint is shown if a required one is missing.
pub fn query<T: DeserializeOwned>(query: Option<&str>, hint: &str) -> Result<T, Invalid> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs: Vec<(Cow<'_, str>, Parameter<'_>)> = pairs.map(decode).collect::<Result<_, Invalid>>()?;
    let parameters: MapDeserializer<'_, _, Error> = MapDeserializer::new(pairs.into_iter());
    serde_path_to_error::deserialize(parameters)
        .map_err(|error| Invalid::explained(error.path(), &error.inner().to_string(), hint))
}

fn decode(pair: &str) -> Result<(Cow<'_, str>, Parameter<'_>), Invalid> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    Ok((text(name)?, Parameter(text(value).map_err(|error| Invalid::new(shortened(name), error.problem))?)))
}

fn text(encoded: &str) -> Result<Cow<'_, str>, Invalid> {
    let spaced = encoded.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded = decoded.map_err(|_| Invalid::new("", "is not UTF-8; encode it as UTF-8, then percent-encode it"))?;
    Ok(Cow::Owned(decoded.into_owned()))
}

/// The value of a parameter: a text, and what it can be parsed as.
struct Parameter<'q>(Cow<'q, str>);

impl<'de> IntoDeserializer<'de> for Parameter<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Parameter<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(&self.0)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let is_number = !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_digit());
        match self.0.parse() {
            Ok(number) if is_number => visitor.visit_u64(number),
            _ => visitor.visit_str(&self.0),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.into_deserializer().deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
