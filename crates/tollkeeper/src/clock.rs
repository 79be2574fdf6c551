//! The only place that reads the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use tollkeeper_core::{Span, Timestamp};

/// Where a store's time comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Clock {
    /// The machine's clock.
    System(SystemClock),
    /// A clock that only moves when the program moves it, for tests and replay.
    Manual(ManualClock),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Clock {
        Clock::System(SystemClock::new())
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System(clock) => clock.now(),
            Clock::Manual(clock) => clock.now(),
        }
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Clock {
        Clock::Manual(clock)
    }
}

/// A clock that stands still until it is moved. Clones show the same time.
///
/// ```
/// use tollkeeper::{ManualClock, Span, Timestamp};
/// let clock = ManualClock::at(Timestamp::from_micros(1_000));
/// clock.advance(Span::from_micros(5));
/// assert_eq!(clock.now(), Timestamp::from_micros(1_005));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock(Arc::new(AtomicU64::new(now.as_micros())))
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Relaxed))
    }

    /// Shows `now` from here on, even if that is earlier.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Relaxed);
    }

    /// Moves on.
    pub fn advance(&self, span: Span) {
        self.0.fetch_add(span.as_micros(), Relaxed);
    }
}

/// Wall-clock time for the cost of reading the processor's counter: the counter measures elapsed time, and its offset
/// from the wall clock is measured again once a second, so that the clock follows corrections.
#[derive(Clone, Debug)]
pub struct SystemClock(Arc<Anchor>);

#[derive(Debug)]
struct Anchor {
    counter: quanta::Clock,
    origin: u64,
    /// Microseconds per tick of the counter, times 2^64: reading the clock takes one multiplication.
    micros_per_tick: u64,
    /// Wall time minus counter time, in microseconds.
    offset: AtomicI64,
    /// Counter time at which the offset is measured again.
    stale_at: AtomicU64,
}

impl SystemClock {
    const MEASURE_EVERY_US: u64 = 1_000_000;

    fn new() -> SystemClock {
        let counter = quanta::Clock::new();
        // The rounding error is far below what the offset corrects every second.
        let nanos = u128::from(counter.delta_as_nanos(0, 1 << 40));
        let micros_per_tick = u64::try_from((nanos << 24) / 1_000).unwrap_or(u64::MAX);
        let origin = counter.raw();
        let (offset, stale_at) = (AtomicI64::new(0), AtomicU64::new(0));
        SystemClock(Arc::new(Anchor { counter, origin, micros_per_tick, offset, stale_at }))
    }

    #[inline]
    fn now(&self) -> Timestamp {
        let anchor = &*self.0;
        let ticks = anchor.counter.raw().saturating_sub(anchor.origin);
        let elapsed = ((u128::from(ticks) * u128::from(anchor.micros_per_tick)) >> 64) as u64;
        if elapsed >= anchor.stale_at.load(Relaxed) {
            anchor.measure(elapsed);
        }
        let wall = elapsed as i64 + anchor.offset.load(Relaxed);
        Timestamp::from_micros(wall.max(0) as u64)
    }
}

impl Anchor {
    #[cold]
    fn measure(&self, elapsed: u64) {
        // A time before 1970 reads as the epoch: limits work, only windows are not aligned.
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.offset.store(wall.as_micros() as i64 - elapsed as i64, Relaxed);
        self.stale_at.store(elapsed + SystemClock::MEASURE_EVERY_US, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_shows_wall_time() {
        let clock = Clock::system();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_micros() as u64;
        let shown = clock.now().as_micros();
        assert!(shown.abs_diff(wall) < 1_000_000, "{shown} is not near {wall}");
    }
}
