//! Points in time and durations in whole microseconds, small enough for Lua's doubles to hold exactly.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Every integer below this is exact as a double. No number that a limit uses reaches it.
pub(crate) const EXACT: u64 = 1 << 53;

/// A point in time: whole microseconds since the Unix epoch, by the clock of the store that decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last moment that can be decided (in the year 2112). Leaves room below 2^53 for any wait added to it.
    pub const MAX: Timestamp = Timestamp((1 << 52) - 1);

    /// From microseconds since the epoch, at most [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Timestamp(micros) }
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here, or zero when `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The start of the window of length `window` that contains this moment; windows are aligned to the epoch.
    pub(crate) const fn window_start(self, window: Span) -> Timestamp {
        Timestamp(self.0 - self.0 % window.0)
    }
}

/// State kept by a store may lie past [`Timestamp::MAX`] by one refill, so addition does not clamp.
impl Add<Span> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Span) -> Timestamp {
        Timestamp(self.0 + span.0)
    }
}

/// A duration in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);
    /// One second.
    pub const SECOND: Span = Span(1_000_000);
    /// The longest period or refill that a quota may have (71 years): sums with any [`Timestamp`] stay below 2^53.
    pub const MAX: Span = Span(1 << 51);

    /// From microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Span(micros)
    }

    /// From seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Span(seconds.saturating_mul(1_000_000))
    }

    /// Whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded up so that no client returns early.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded up: with "0 s" a caller would retry at once and be denied again.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// As a duration of the standard library.
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

/// The way people write it: `90s`, `2min`, `100ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "min"),
            (1_000_000, "s"),
            (1_000, "ms"),
            (1, "us"),
        ];
        let (size, unit) =
            *UNITS.iter().find(|(size, _)| self.0 >= *size && self.0.is_multiple_of(*size)).unwrap_or(&UNITS[5]);
        write!(f, "{}{unit}", self.0 / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_write_them() {
        let text = |micros| Span::from_micros(micros).to_string();
        assert_eq!(text(90_000_000), "90s");
        assert_eq!(text(120_000_000), "2min");
        assert_eq!(text(1_500), "1500us");
        assert_eq!(text(0), "0us");
        assert_eq!(text(86_400_000_000), "1d");
    }

    #[test]
    fn waits_round_up() {
        assert_eq!(Span::from_micros(1).as_secs_ceil(), 1);
        assert_eq!(Span::from_micros(1_000_001).as_millis_ceil(), 1_001);
        assert_eq!(Span::ZERO.as_secs_ceil(), 0);
    }
}
