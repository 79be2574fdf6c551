//! The name of a slot of a `concurrency` rule.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use tollkeeper::{Hold, Key, Row, Timestamp};

use crate::strict::parsed;

/// Identifies a slot of a `concurrency` rule, together with rule and key: `variant.at.nth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldToken {
    /// Which of the buckets that share the key's text.
    pub(crate) variant: u16,
    /// Which slot of it.
    pub(crate) hold: Hold,
}

impl HoldToken {
    const PATTERN: &'static str = r"^[0-9]{1,5}\.[0-9]{1,16}\.[0-9]{1,10}$";

    pub(crate) fn of(row: &Row) -> Option<HoldToken> {
        row.decision.hold.map(|hold| HoldToken { variant: row.charge.key.variant, hold })
    }

    /// The bucket whose key has this text.
    pub(crate) fn key(&self, value: &str) -> Key {
        Key { variant: self.variant, value: value.to_string() }
    }
}

impl fmt::Display for HoldToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.variant, self.hold.at.as_micros(), self.hold.nth)
    }
}

impl Serialize for HoldToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HoldToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl JsonSchema for HoldToken {
    fn schema_name() -> Cow<'static, str> {
        "Hold".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": HoldToken::PATTERN,
            "description": "Names a taken slot of a concurrency rule; taken as it is.",
            "examples": ["0.1767225600000000.0"],
        })
    }
}

/// A text that is not a hold from any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a hold; send back what the check answered in `hold`")]
pub(crate) struct HoldTokenError;

impl FromStr for HoldToken {
    type Err = HoldTokenError;

    /// Parses every text of the right form. Numbers out of range name a slot that cannot exist: they are clamped into
    /// range, where nothing will be found either, because a slot with the largest number is never given out.
    fn from_str(text: &str) -> Result<HoldToken, HoldTokenError> {
        let mut parts = text.split('.');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|part| (1..=digits).contains(&part.len())).ok_or(HoldTokenError)?;
            let fine = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| fine).ok_or(HoldTokenError)
        };
        let (variant, at, nth) = (number(5)?, number(16)?, number(10)?);
        if parts.next().is_some() {
            return Err(HoldTokenError);
        }
        Ok(HoldToken {
            variant: variant.try_into().unwrap_or(u16::MAX),
            hold: Hold { at: Timestamp::from_micros(at), nth: nth.try_into().unwrap_or(u32::MAX) },
        })
    }
}
