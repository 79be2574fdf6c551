//! Reads values of several YAML types; the errors use the terms of the rules file.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{CostSpec, EstimatedCost, MatchValue, OneOrMany, Scalar};

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number or a text")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(u64::try_from(number).map_or_else(|_| Scalar::Text(number.to_string()), Scalar::Number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        Err(E::custom(format!("{number} is not a whole number")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.into()))
    }
}

impl<'de> Deserialize<'de> for CostSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CostVisitor)
    }
}

struct CostVisitor;

impl<'de> Visitor<'de> for CostVisitor {
    type Value = CostSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, the name of an attribute, a list of cases, or `from` with an `estimate`")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CostSpec, A::Error> {
        EstimatedCost::deserialize(MapAccessDeserializer::new(map)).map(CostSpec::Estimated)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<CostSpec, E> {
        ScalarVisitor.visit_u64(number).map(CostSpec::One)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<CostSpec, E> {
        ScalarVisitor.visit_i64(number).map(CostSpec::One)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<CostSpec, E> {
        ScalarVisitor.visit_f64(number).map(CostSpec::One)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CostSpec, E> {
        ScalarVisitor.visit_str(text).map(CostSpec::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CostSpec, A::Error> {
        let mut cases = Vec::new();
        while let Some(case) = list.next_element()? {
            cases.push(case);
        }
        Ok(CostSpec::Cases(cases))
    }
}

impl<'de> Deserialize<'de> for MatchValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(value) => Ok(value),
            OneOrMany::Many(_) => Err(D::Error::custom("a list inside a list; write one list of values")),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a glob such as /api/*, a network, null for absent, or a list of them")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(MatchValue::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(MatchValue::Number(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(
            i64::try_from(value).map_or_else(|_| MatchValue::Text(value.to_string()), MatchValue::Number),
        ))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<OneOrMany, E> {
        Err(E::custom(format!("{value} could be written in several ways; put it in quotes")))
    }

    fn visit_unit<E: Error>(self) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(MatchValue::Absent))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(MatchValue::Text(value.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(OneOrMany::Many(values))
    }
}
