//! Points in time as text: RFC 3339. Any offset and any fraction can be read; written are UTC and milliseconds, so
//! that texts sort like the times.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;

use jiff::fmt::temporal::DateTimePrinter;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use tollkeeper::{Span, Timestamp, parse_span};

use crate::strict::parsed;

/// A point in time, read and written as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MILLISECONDS: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
        // No timestamp lies past the year 2255, so this always succeeds.
        let at = jiff::Timestamp::from_microsecond(self.0.as_micros() as i64).unwrap_or_default();
        f.write_str(&MILLISECONDS.timestamp_to_string(&at))
    }
}

/// A text that is not a point in time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a time; use RFC 3339, such as 2030-01-31T12:00:00Z or 2030-01-31T13:00:00+01:00")]
pub struct NotAMoment;

impl FromStr for Moment {
    type Err = NotAMoment;

    fn from_str(text: &str) -> Result<Moment, NotAMoment> {
        if !has_shape_of_rfc3339(text.as_bytes()) {
            return Err(NotAMoment);
        }
        let at: jiff::Timestamp = text.parse().map_err(|_| NotAMoment)?;
        let micros = u64::try_from(at.as_microsecond()).map_err(|_| NotAMoment)?;
        Ok(Moment(Timestamp::from_micros(micros)))
    }
}

/// Jiff reads more than RFC 3339: no minutes, a space, a comma, a zone in brackets. What is a date and what a time of day it knows.
fn has_shape_of_rfc3339(text: &[u8]) -> bool {
    let fits = |text: &[u8], shape: &[u8]| {
        let digit = |(byte, place): (&u8, &u8)| {
            if *place == b'0' { byte.is_ascii_digit() } else { byte.eq_ignore_ascii_case(place) }
        };
        text.len() == shape.len() && text.iter().zip(shape).all(digit)
    };
    let Some((time, rest)) = text.split_at_checked(19) else { return false };
    let fraction = match rest {
        [b'.', digits @ ..] => 1 + digits.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    let offset = &rest[fraction..];
    let minutes = |offset: &[u8]| fits(offset, b"+00:00") || fits(offset, b"-00:00");
    fits(time, b"0000-00-00T00:00:00")
        && fraction != 1
        && (fits(offset, b"Z") || minutes(offset) && &offset[1..3] <= b"23".as_slice())
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

/// For fields that are a [`Timestamp`], or may be.
pub fn serialize<S: Serializer>(at: &(impl Copy + Into<Option<Timestamp>>), serializer: S) -> Result<S::Ok, S::Error> {
    (*at).into().map(Moment).serialize(serializer)
}

/// What RFC 3339 allows, from 1970 to 2119.
macro_rules! pattern {
    () => {
        "(19[7-9][0-9]|20[0-9]{2}|21[01][0-9])-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)\
         |02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

impl JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "pattern": concat!("^", pattern!(), "$") })
    }
}

/// A point in time, or how long ago it was: `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastMoment {
    /// This long before now.
    Ago(Span),
    /// This point in time.
    At(Timestamp),
}

impl PastMoment {
    /// The point in time, relative to `now`.
    pub fn seen_from(self, now: Timestamp) -> Timestamp {
        match self {
            PastMoment::Ago(span) => Timestamp::from_micros(now.as_micros().saturating_sub(span.as_micros())),
            PastMoment::At(at) => at,
        }
    }
}

/// A text that is neither a point in time nor a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a time; use 1h or 30min for that long ago, or RFC 3339 such as 2026-01-31T12:00:00Z")]
pub struct NotAPastMoment;

impl FromStr for PastMoment {
    type Err = NotAPastMoment;

    fn from_str(text: &str) -> Result<PastMoment, NotAPastMoment> {
        if let Ok(span) = parse_span(text) {
            return Ok(PastMoment::Ago(span));
        }
        // An unencoded plus arrives in a query as a space.
        let offset = text.len().checked_sub(6).filter(|start| text.is_char_boundary(*start));
        let text = match offset.map(|start| text.split_at(start)) {
            Some((time, offset)) if offset.starts_with(' ') => Cow::Owned(format!("{time}+{}", &offset[1..])),
            _ => Cow::Borrowed(text),
        };
        text.parse().map(|Moment(at)| PastMoment::At(at)).map_err(|_| NotAPastMoment)
    }
}

impl<'de> Deserialize<'de> for PastMoment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

impl JsonSchema for PastMoment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PastMoment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": concat!("^[1-9][0-9]{0,3}(s|min|h)$|^", pattern!(), "$"),
            "examples": ["1h", "2026-01-31T12:00:00Z"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    #[test]
    fn moments_are_read_as_they_are_written() {
        for (text, micros) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T23:59:59.999Z", 951_868_799_999_000),
            ("2026-01-01T00:00:00.000Z", 1_767_225_600_000_000),
            ("2100-03-01T00:00:00.000Z", 4_107_542_400_000_000),
        ] {
            let moment = Moment(Timestamp::from_micros(micros));
            assert_eq!(moment.to_string(), text);
            assert_eq!(text.parse(), Ok(moment));
        }
        assert_eq!(Moment(Timestamp::MAX).to_string(), "2112-09-17T23:53:47.370Z");
    }

    /// An exception's `until` used to refuse `+01:00`, which a query's `since` accepted.
    #[test]
    fn every_offset_and_fraction_is_read() {
        for (text, micros) in [
            ("2026-01-01T01:00:00+01:00", 0),
            ("2025-12-31T18:30:00-05:30", 0),
            ("2026-01-01T00:00:00.5Z", 500_000),
            ("2026-01-01T00:00:00.123456789Z", 123_456),
            ("2026-01-01t00:00:00z", 0),
        ] {
            let moment = Moment(Timestamp::from_micros(NOW.as_micros() + micros));
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "Z",
            "tomorrow",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "+026-01-01T00:00:00Z",
            "+002026-01-01T00:00:00Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00,5Z",
            "2026-01-01T00:00:00+01",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+01:60",
            "2026-01-01T00:00:00+01:00[Europe/Berlin]",
            "2026-01-01T00:00:00Z[UTC]",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(NotAMoment), "{text}");
        }
    }

    #[test]
    fn the_past_may_be_given_by_how_long_ago_it_was() {
        let seen = |text: &str| text.parse().map(|past: PastMoment| past.seen_from(NOW));
        assert_eq!(seen("90s"), Ok(Timestamp::from_micros(NOW.as_micros() - 90_000_000)));
        assert_eq!(seen("2026-01-01T00:00:00Z"), Ok(NOW));
        assert_eq!(seen("2026-01-01T01:00:00+01:00"), Ok(NOW));
        assert_eq!(seen("2026-01-01T01:00:00 01:00"), Ok(NOW), "a plus that was not encoded");
        for text in ["", "5", "yesterday", "2026-01-01T01:00:00 é:00"] {
            assert_eq!(seen(text), Err(NotAPastMoment), "{text}");
        }
    }
}
