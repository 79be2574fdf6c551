//! A quota: an algorithm and its numbers, proven at construction to stay in exact arithmetic.

use std::convert::Infallible;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::calendar::{Calendar, CalendarUnit, CalendarWindow};
use crate::former::{Former, Formers};
use crate::pace::{Pace, Refill};
use crate::time::{EXACT, Span, Timestamp};

/// How admitted requests are counted. The names are those of the rules file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
// Exhaustive on purpose: a store must know every algorithm, and the compiler says where one is missing.
pub enum Algorithm {
    /// A bucket of `burst` tokens, refilled continuously.
    #[default]
    TokenBucket,
    /// Another name for the algorithm of `token_bucket`.
    Gcra,
    /// N per window, windows aligned to the clock.
    FixedWindow,
    /// N in any window, remembering every admitted request.
    SlidingWindowLog,
    /// N per window, the previous one fading out linearly.
    SlidingWindowCounter,
    /// A queue of depth `burst`, drained at the rate; each request gets the delay until its turn.
    LeakyBucket,
    /// N at the same time; a slot is released by the caller or by expiry of its hold.
    Concurrency,
}

impl Algorithm {
    /// All of them, in the order of the documentation.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::TokenBucket,
        Algorithm::Gcra,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::LeakyBucket,
        Algorithm::Concurrency,
    ];

    /// The name used in rules files, metrics and docs.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::Gcra => "gcra",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindowLog => "sliding_window_log",
            Algorithm::SlidingWindowCounter => "sliding_window_counter",
            Algorithm::LeakyBucket => "leaky_bucket",
            Algorithm::Concurrency => "concurrency",
        }
    }

    /// Whether `burst` applies: buckets only.
    pub const fn has_burst(self) -> bool {
        matches!(self, Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket)
    }

    /// Whether the state remembers each admitted request.
    pub const fn keeps_log(self) -> bool {
        matches!(self, Algorithm::SlidingWindowLog | Algorithm::Concurrency)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An algorithm with its numbers. Only [`Quota::new`] makes one, so every quota is decided exactly.
///
/// ```
/// use tollkeeper_core::{Algorithm, Quota};
///
/// let quota = Quota::per_second(50).burst(100).build()?;
/// assert_eq!(quota.limit(), 100);
/// let window = Quota::per_minute(600).algorithm(Algorithm::FixedWindow).build()?;
/// assert_eq!(window.to_string(), "600/min fixed_window");
/// # Ok::<(), tollkeeper_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    algorithm: Algorithm,
    count: u32,
    period: Span,
    limit: u32,
    pace: Pace,
    formers: Formers,
    calendar: Option<Calendar>,
}

/// Hashes the numbers only; former paces are left to `Eq`.
impl Hash for Quota {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.algorithm, self.count, self.period, self.limit, self.calendar).hash(state);
    }
}

impl Quota {
    /// The most requests that an algorithm with a log may admit in one window.
    pub const MAX_LOG: u32 = 100_000;
    /// The largest count or burst. One less than the largest cost, so that a saturated cost never passes.
    pub const MAX_COUNT: u32 = u32::MAX - 1;

    /// `count` per second; [`QuotaBuilder`] sets the rest.
    pub const fn per_second(count: u32) -> QuotaBuilder {
        Quota::per(count, Span::SECOND)
    }

    /// `count` per minute.
    pub const fn per_minute(count: u32) -> QuotaBuilder {
        Quota::per(count, Span::from_secs(60))
    }

    /// `count` per hour.
    pub const fn per_hour(count: u32) -> QuotaBuilder {
        Quota::per(count, Span::from_secs(3_600))
    }

    /// `count` per day.
    pub const fn per_day(count: u32) -> QuotaBuilder {
        Quota::per(count, Span::from_secs(86_400))
    }

    /// `count` per `period` of any length.
    pub const fn per(count: u32, period: Span) -> QuotaBuilder {
        QuotaBuilder { algorithm: Algorithm::TokenBucket, count, period, burst: None, calendar: None }
    }

    /// `count` per day, week, month or year of a calendar, as a `fixed_window`.
    ///
    /// ```
    /// # use tollkeeper_core::{Calendar, CalendarUnit, Quota};
    /// let month = Calendar::new(CalendarUnit::Month).timezone("Europe/Berlin")?;
    /// let quota = Quota::per_calendar(1_000, month).build()?;
    /// assert_eq!(quota.to_string(), "1,000/month fixed_window timezone Europe/Berlin");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn per_calendar(count: u32, calendar: Calendar) -> QuotaBuilder {
        let period = calendar.unit().usual_length();
        QuotaBuilder { algorithm: Algorithm::FixedWindow, count, period, burst: None, calendar: Some(calendar) }
    }

    /// At most `count` at the same time; unreleased slots expire after `hold`.
    pub const fn concurrent(count: u32, hold: Span) -> QuotaBuilder {
        QuotaBuilder { algorithm: Algorithm::Concurrency, count, period: hold, burst: None, calendar: None }
    }

    /// Proves that everything computed for this quota stays an exact integer below 2^53.
    pub fn new(spec: QuotaBuilder) -> Result<Quota, QuotaError> {
        let QuotaBuilder { algorithm, count, period, burst, calendar } = spec;
        let limit = if algorithm.has_burst() { burst.unwrap_or(count) } else { count };
        for (field, value) in [("limit", count), ("burst", limit)] {
            if value == 0 {
                return Err(QuotaError::Zero { field });
            }
            if value > Self::MAX_COUNT {
                return Err(QuotaError::CountTooLarge { field, value });
            }
        }
        if let Some(calendar) = calendar.filter(|_| algorithm != Algorithm::FixedWindow) {
            return Err(QuotaError::NotFixed { algorithm, unit: calendar.unit() });
        }
        if period == Span::ZERO {
            return Err(QuotaError::ZeroPeriod);
        }
        if period > Span::MAX {
            return Err(QuotaError::PeriodTooLong { period });
        }
        if algorithm.keeps_log() && count > Self::MAX_LOG {
            return Err(QuotaError::LogTooLong { algorithm, count });
        }
        if algorithm == Algorithm::SlidingWindowCounter
            && u128::from(count) * u128::from(period.as_micros()) >= u128::from(EXACT)
        {
            return Err(QuotaError::CounterTooLarge { count, period });
        }
        let pace = if algorithm.has_burst() {
            Pace::new(count, period, limit).ok_or(QuotaError::BurstTooLarge { burst: limit, count, period })?
        } else {
            Pace::NONE
        };
        Ok(Quota { algorithm, count, period, limit, pace, formers: Formers::NONE, calendar })
    }

    /// How requests are counted.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// N of `N per period`.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The period of the rate, the length of the window, or the lifetime of a hold. For windows of a calendar their
    /// usual length.
    pub const fn period(&self) -> Span {
        self.period
    }

    /// The most that can ever pass at once: the burst of a bucket, or N.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The calendar of its windows, if they are not all equally long.
    pub const fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_ref()
    }

    /// The window that contains this moment.
    #[inline]
    pub fn window_at(&self, at: Timestamp) -> CalendarWindow {
        match &self.calendar {
            Some(calendar) => calendar.window(at),
            None => {
                let start = at.window_start(self.period);
                CalendarWindow { start, end: start + self.period }
            }
        }
    }

    /// When a window ends that started then.
    #[inline]
    pub(crate) fn window_end(&self, start: Timestamp) -> Timestamp {
        match &self.calendar {
            Some(calendar) => calendar.window(start).end,
            None => start + self.period,
        }
    }

    /// The longest that used state can matter: the time from empty to full. For windows of a calendar an upper bound.
    pub fn full_refill(&self) -> Span {
        if let Some(calendar) = &self.calendar {
            return calendar.unit().longest();
        }
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => self.pace.full().ceil(),
            Algorithm::SlidingWindowCounter => Span::from_micros(2 * self.period.as_micros()),
            Algorithm::FixedWindow | Algorithm::SlidingWindowLog | Algorithm::Concurrency => self.period,
        }
    }

    /// One of this many equal shares of this quota, for an instance that cannot reach the others. Together they hold
    /// what the whole does, except that every share is at least one.
    ///
    /// ```
    /// # use tollkeeper_core::Quota;
    /// let quota = Quota::per_second(10).burst(50).build()?;
    /// assert_eq!(quota.share(4).to_string(), "10/4s burst 12 token_bucket");
    /// # Ok::<(), tollkeeper_core::QuotaError>(())
    /// ```
    pub fn share(&self, shares: u32) -> Quota {
        let shares = shares.max(1);
        let part = |whole: u32| (whole / shares).max(1);
        let of = |count, period| {
            let spec = Quota::per(count, period).burst(part(self.limit)).algorithm(self.algorithm);
            Quota::new(QuotaBuilder { calendar: self.calendar, ..spec }).ok()
        };
        let longer = Span::from_micros(self.period.as_micros().saturating_mul(u64::from(shares)));
        // A longer period divides the rate exactly, unless it becomes too long to count.
        let exact = if self.algorithm.has_burst() { of(self.count, longer) } else { None };
        exact.or_else(|| of(part(self.count), self.period)).unwrap_or(*self)
    }

    /// The numbers of the bucket; `None` for an algorithm without one.
    pub const fn refill(&self) -> Option<Refill> {
        if self.algorithm.has_burst() { Some(self.pace.refill()) } else { None }
    }

    /// This quota in place of another one since `at`: tokens missing from a bucket under the former numbers stay
    /// missing. Windows and logs count costs, so nothing needs converting.
    ///
    /// ```
    /// # use tollkeeper_core::{Quota, State, Timestamp, decide};
    /// let now = Timestamp::from_micros(1_700_000_000_000_000);
    /// let small = Quota::per_second(10).burst(50).build()?;
    /// let mut state = State::Fresh;
    /// state.apply(decide(&small, 50, &state, now).1);
    /// let large = Quota::per_second(100).burst(500).build()?.in_place_of(&small, now);
    /// assert_eq!(decide(&large, 0, &state, now).0.remaining, 450);
    /// # Ok::<(), tollkeeper_core::QuotaError>(())
    /// ```
    #[must_use]
    pub fn in_place_of(&self, former: &Quota, at: Timestamp) -> Quota {
        if !self.algorithm.has_burst() || !former.algorithm.has_burst() {
            return *self;
        }
        let (pace, formers) = if self.pace.is_same(&former.pace) {
            (former.pace, former.formers)
        } else {
            former.formers.followed_by(self.pace, Former { pace: former.pace, until: at })
        };
        Quota { pace, formers, ..*self }
    }

    /// The same quota for callers that bring their own numbers with each request, as redis-cell's do: whatever the
    /// numbers were, a bucket is full at the moment that was stored.
    #[must_use]
    pub const fn untagged(mut self) -> Quota {
        self.pace.set_tag(0);
        self
    }

    /// The former paces under which buckets may still be stored, newest first, and until when each was in force.
    pub fn former_refills(&self) -> impl ExactSizeIterator<Item = (Refill, Timestamp)> + '_ {
        self.formers.as_slice().iter().map(|former| (former.pace.refill(), former.until))
    }

    pub(crate) const fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) const fn formers(&self) -> &Formers {
        &self.formers
    }
}

/// As in a rules file: `10/s burst 50 token_bucket`.
/// As people write it: `100,000/day burst 500 token_bucket`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = Grouped(self.count);
        if self.algorithm == Algorithm::Concurrency {
            return write!(f, "{count} hold {} {}", self.period, self.algorithm);
        }
        if let Some(calendar) = &self.calendar {
            write!(f, "{count}/{} {}", calendar.unit(), self.algorithm)?;
            return write!(f, "{calendar}");
        }
        let mut period = self.period.to_string();
        if period.ends_with('d') {
            period += "ay";
        }
        // 10/s rather than 10/1s, but 10/15s.
        let unit = period.strip_prefix('1').filter(|unit| unit.starts_with(|c: char| c.is_ascii_alphabetic()));
        write!(f, "{count}/{}", unit.unwrap_or(&period))?;
        if self.limit != self.count {
            write!(f, " burst {}", Grouped(self.limit))?;
        }
        write!(f, " {}", self.algorithm)
    }
}

/// `100,000`.
struct Grouped(u32);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            let comma = if index > 0 && (digits.len() - index).is_multiple_of(3) { "," } else { "" };
            write!(f, "{comma}{digit}")?;
        }
        Ok(())
    }
}

/// The numbers of a quota before they are checked. `build` (or anything that takes a quota) checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a builder is not a quota until it is built"]
pub struct QuotaBuilder {
    algorithm: Algorithm,
    count: u32,
    period: Span,
    burst: Option<u32>,
    calendar: Option<Calendar>,
}

impl QuotaBuilder {
    /// How much may pass at once after idling; the count of the rate by default. Windows have none.
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// How requests are counted; a token bucket by default.
    pub const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Checks the numbers.
    pub fn build(self) -> Result<Quota, QuotaError> {
        Quota::new(self)
    }
}

impl TryFrom<QuotaBuilder> for Quota {
    type Error = QuotaError;
    fn try_from(spec: QuotaBuilder) -> Result<Quota, QuotaError> {
        Quota::new(spec)
    }
}

/// Why numbers cannot be a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// A text that is not a quota.
    #[error("{problem}")]
    Unreadable {
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// A limit of zero.
    #[error("{field} 0 would admit nothing; use at least 1, or deactivate the rule with `active: false`")]
    Zero {
        /// `limit` or `burst`.
        field: &'static str,
    },
    /// More than can be counted.
    #[error("{field} {value} is too large; the largest is {}", Quota::MAX_COUNT)]
    CountTooLarge {
        /// `limit` or `burst`.
        field: &'static str,
        /// The value given.
        value: u32,
    },
    /// Windows of a calendar with an algorithm that has none.
    #[error(
        "{algorithm} needs a fixed period, but calendar {unit}s vary in length; use fixed_window, or write {}day",
        unit.usual_length().as_micros() / 86_400_000_000
    )]
    NotFixed {
        /// The algorithm.
        algorithm: Algorithm,
        /// The unit of the limit.
        unit: CalendarUnit,
    },
    /// A period of zero.
    #[error("a period of 0 is not a rate; write for example 10/s")]
    ZeroPeriod,
    /// A period that is too long.
    #[error("a period of {period} is too long to count exactly; the longest is {}", Span::from_secs(Span::MAX.as_micros() / 86_400_000_000 * 86_400))]
    PeriodTooLong {
        /// The period given.
        period: Span,
    },
    /// The bucket would take too long to fill, or its fractions are too fine.
    #[error("burst {burst} at {count}/{period} is too large to count exactly; lower the burst")]
    BurstTooLarge {
        /// The burst given.
        burst: u32,
        /// The rate's count.
        count: u32,
        /// The rate's period.
        period: Span,
    },
    /// The weighted sum of two windows would not be exact.
    #[error(
        "{count} per {period} is too large for sliding_window_counter to count exactly \
         (count times microseconds must stay below 2^53); use token_bucket or fixed_window, or a shorter window"
    )]
    CounterTooLarge {
        /// The count given.
        count: u32,
        /// The window.
        period: Span,
    },
    /// A log of this many requests would take too much memory.
    #[error(
        "{algorithm} stores every admitted request, so {count} is too many (at most {}); use sliding_window_counter \
         or token_bucket",
        Quota::MAX_LOG
    )]
    LogTooLong {
        /// Which algorithm.
        algorithm: Algorithm,
        /// The count given.
        count: u32,
    },
}

/// For functions that take anything that becomes a quota, including a quota itself, which cannot fail.
impl From<Infallible> for QuotaError {
    fn from(never: Infallible) -> QuotaError {
        match never {}
    }
}

impl QuotaError {
    /// The field of a rule that has to change.
    pub const fn field(&self) -> &'static str {
        match self {
            QuotaError::Zero { field } | QuotaError::CountTooLarge { field, .. } => field,
            QuotaError::BurstTooLarge { .. } => "burst",
            QuotaError::Unreadable { .. }
            | QuotaError::NotFixed { .. }
            | QuotaError::ZeroPeriod
            | QuotaError::PeriodTooLong { .. }
            | QuotaError::CounterTooLarge { .. }
            | QuotaError::LogTooLong { .. } => "limit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_it_cannot_count_and_says_what_to_do() {
        let text = |spec: QuotaBuilder| spec.build().expect_err("refused").to_string();
        assert!(text(Quota::per_second(0)).starts_with("limit 0 would admit nothing"));
        assert!(text(Quota::per_second(1).burst(0)).starts_with("burst 0 would admit nothing"));
        assert_eq!(
            text(Quota::per(1, Span::from_secs(30 * 86_400)).burst(5_000_000)),
            "burst 5000000 at 1/30d is too large to count exactly; lower the burst"
        );
        assert!(
            text(Quota::per_day(1_000_000).algorithm(Algorithm::SlidingWindowCounter)).contains("use token_bucket")
        );
        assert!(text(Quota::per_day(1_000_000).algorithm(Algorithm::SlidingWindowLog)).contains("100000"));
    }

    #[test]
    fn accepts_every_rate_that_fits() {
        for (count, period) in [(3, 1), (7_919, 1), (1, 86_400), (1_234_567, 86_400), (4_000_000_000, 1)] {
            Quota::per(count, Span::from_secs(period)).build().expect("fits");
        }
        Quota::per_second(1).burst(2_000_000_000).build().expect("fits");
    }
}
