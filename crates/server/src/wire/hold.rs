//! The name of a slot of a `concurrency` rule.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use tollkeeper::{Hold, Key, Row, Timestamp};

use crate::seal::{self, Seal};
use crate::strict::parsed;

/// Which slot of a rule and key: `variant.at.nth`. It can be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldName {
    /// Which of the buckets that share the key's text.
    pub(crate) variant: u16,
    /// Which slot of it.
    pub(crate) hold: Hold,
}

/// A slot's name with its seal, which cannot be guessed: `variant.at.nth.seal`. Whoever has it may release the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldToken {
    pub(crate) name: HoldName,
    pub(crate) seal: [u8; seal::LENGTH],
}

impl HoldName {
    pub(crate) fn of(row: &Row) -> Option<HoldName> {
        row.decision.hold.map(|hold| HoldName { variant: row.charge.key.variant, hold })
    }
}

impl HoldToken {
    const PATTERN: &'static str = r"^[0-9]{1,5}\.[0-9]{1,16}\.[0-9]{1,10}\.[0-9a-f]{32}$";

    pub(crate) fn of(row: &Row, seal: &Seal) -> Option<HoldToken> {
        let name = HoldName::of(row)?;
        Some(HoldToken { name, seal: seal.of(row.charge.rule.name(), &row.charge.key, name.hold) })
    }

    /// The bucket whose key has this text.
    pub(crate) fn key(&self, value: &str) -> Key {
        Key { variant: self.name.variant, value: value.to_string() }
    }
}

impl fmt::Display for HoldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.variant, self.hold.at.as_micros(), self.hold.nth)
    }
}

impl fmt::Display for HoldToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, HEXLOWER.encode(&self.seal))
    }
}

impl Serialize for HoldName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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
            "description": "Identifies a slot of a concurrency rule and cannot be guessed; send it back unchanged.",
            "examples": ["0.1767225600000000.0.5f2d1c0b9a8e7d6c5b4a39281706f5e4"],
        })
    }
}

/// A text that is not a hold from any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a hold; send the `hold` from the answer to the check")]
pub(crate) struct HoldTokenError;

impl FromStr for HoldToken {
    type Err = HoldTokenError;

    /// Parses every text of the right form. Numbers out of range name a slot that cannot exist: they are clamped into
    /// range, where nothing will be found either, because a slot with the largest number is never given out.
    fn from_str(text: &str) -> Result<HoldToken, HoldTokenError> {
        let (name, seal) = text.rsplit_once('.').ok_or(HoldTokenError)?;
        let mut parts = name.split('.');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|part| (1..=digits).contains(&part.len())).ok_or(HoldTokenError)?;
            let fine = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| fine).ok_or(HoldTokenError)
        };
        let (variant, at, nth) = (number(5)?, number(16)?, number(10)?);
        if parts.next().is_some() {
            return Err(HoldTokenError);
        }
        let seal = HEXLOWER.decode(seal.as_bytes()).ok().and_then(|seal| seal.try_into().ok());
        let hold = Hold { at: Timestamp::from_micros(at), nth: nth.try_into().unwrap_or(u32::MAX) };
        let name = HoldName { variant: variant.try_into().unwrap_or(u16::MAX), hold };
        Ok(HoldToken { name, seal: seal.ok_or(HoldTokenError)? })
    }
}
