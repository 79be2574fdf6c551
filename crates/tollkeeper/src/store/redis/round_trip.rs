//! The round trip time of a server: the shortest time in which it has answered recently.
//!
//! The shortest, because anything longer is load, ours or its own. A windowed minimum filter, as TCP BBR uses for its round trip time,
//! with two windows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Written by the one thread that makes calls, read by all.
#[derive(Debug)]
pub(super) struct RoundTrip {
    /// When the current period began, as a span since some fixed moment. All in microseconds.
    since: AtomicU64,
    current: AtomicU64,
    previous: AtomicU64,
}

impl RoundTrip {
    const PERIOD: Duration = Duration::from_secs(2);

    pub(super) fn new() -> RoundTrip {
        let unknown = || AtomicU64::new(u64::MAX);
        RoundTrip { since: AtomicU64::new(0), current: unknown(), previous: unknown() }
    }

    /// Records how long a call took.
    pub(super) fn note(&self, took: Duration, now: Duration) {
        let (took, now) = (took.as_micros() as u64, now.as_micros() as u64);
        if now.saturating_sub(self.since.load(Relaxed)) >= RoundTrip::PERIOD.as_micros() as u64 {
            self.since.store(now, Relaxed);
            self.previous.store(self.current.swap(took, Relaxed), Relaxed);
        } else if took < self.current.load(Relaxed) {
            self.current.store(took, Relaxed);
        }
    }

    /// Zero as long as nothing is known.
    pub(super) fn shortest(&self) -> Duration {
        match self.current.load(Relaxed).min(self.previous.load(Relaxed)) {
            u64::MAX => Duration::ZERO,
            micros => Duration::from_micros(micros),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_counts_until_it_is_old() {
        let (round_trip, ms) = (RoundTrip::new(), Duration::from_millis);
        assert_eq!(round_trip.shortest(), Duration::ZERO);
        round_trip.note(ms(10), ms(0));
        round_trip.note(ms(3), ms(100));
        round_trip.note(ms(50), ms(200));
        assert_eq!(round_trip.shortest(), ms(3));
        round_trip.note(ms(50), ms(2_100));
        assert_eq!(round_trip.shortest(), ms(3), "a period ago");
        round_trip.note(ms(60), ms(4_200));
        assert_eq!(round_trip.shortest(), ms(50), "the server has moved");
    }
}
