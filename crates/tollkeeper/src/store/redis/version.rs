//! The version of the stored exceptions (see `version.lua`), and a copy of them.

use redis::{FromRedisValue, ParsingError, Value};

/// When their hash was made, and when it was last changed, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) born: u64,
    pub(super) changed: u64,
}

impl Version {
    /// One that another program wrote counts as older than all.
    pub(super) fn parse(text: &str) -> Version {
        let parsed = text.split_once(' ').and_then(|(born, changed)| Some((born.parse().ok()?, changed.parse().ok()?)));
        let (born, changed) = parsed.unwrap_or((0, 0));
        Version { born, changed }
    }

    /// Whether a server that has another version, or none, lacks something of this one.
    pub(super) fn is_lost_in(self, stored: Option<Version>) -> bool {
        stored
            .is_none_or(|stored| stored.born > self.born || (stored.born == self.born && stored.changed < self.changed))
    }
}

/// All exceptions at one moment, to be kept elsewhere too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExceptionsCopy {
    /// When the first one was made, in microseconds since 1970. Later if the server has lost them in between.
    pub born: u64,
    /// When they were last changed.
    pub changed: u64,
    /// The exceptions, as JSON.
    pub document: String,
}

impl ExceptionsCopy {
    /// From its parts, as they were kept.
    pub fn new(born: u64, changed: u64, document: String) -> ExceptionsCopy {
        ExceptionsCopy { born, changed, document }
    }

    /// Whether it has something that another copy lacks.
    pub fn knows_more_than(&self, other: Option<&ExceptionsCopy>) -> bool {
        let version = |copy: &ExceptionsCopy| Version { born: copy.born, changed: copy.changed };
        version(self).is_lost_in(other.map(version))
    }
}

impl FromRedisValue for Version {
    fn from_redis_value(value: Value) -> Result<Version, ParsingError> {
        Ok(Version::parse(&String::from_redis_value(value)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_lost_in_none_in_an_earlier_one_and_in_one_that_was_born_later() {
        let version = |born, changed| Version { born, changed };
        let known = version(10, 20);
        for (stored, is_lost) in [
            (None, true),
            (Some(known), false),
            (Some(version(10, 21)), false),
            (Some(version(10, 19)), true),
            (Some(version(25, 25)), true),
            (Some(version(5, 30)), false),
        ] {
            assert_eq!(known.is_lost_in(stored), is_lost, "{stored:?}");
        }
        assert_eq!(Version::parse("10 20"), known);
        assert_eq!(Version::parse("1763262000.123"), version(0, 0));
    }
}
