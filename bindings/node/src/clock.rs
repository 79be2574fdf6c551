//! A clock that stands still, for tests.

use napi_derive::napi;
use tollkeeper::{Clock, Span, Timestamp};

/// A clock that stands still until it is moved.
#[napi]
pub struct ManualClock(tollkeeper::ManualClock);

#[napi]
impl ManualClock {
    /// Shows this time: seconds since the epoch.
    #[napi(constructor)]
    pub fn new(now: f64) -> ManualClock {
        ManualClock(tollkeeper::ManualClock::at(Timestamp::from_micros(micros(now))))
    }

    /// Moves on by this many seconds.
    #[napi]
    pub fn advance(&self, seconds: f64) {
        self.0.advance(Span::from_micros(micros(seconds)));
    }

    /// Sets the time: seconds since the epoch.
    #[napi]
    pub fn set(&self, now: f64) {
        self.0.set(Timestamp::from_micros(micros(now)));
    }

    /// Sets the time: whole microseconds since the epoch.
    #[napi]
    pub fn set_us(&self, now: f64) {
        self.0.set(Timestamp::from_micros(now.max(0.0) as u64));
    }

    /// Seconds since the epoch.
    #[napi]
    pub fn now(&self) -> f64 {
        seconds(self.0.now().as_micros())
    }
}

impl ManualClock {
    /// The given clock, or the machine's.
    pub(crate) fn or_system(clock: Option<&ManualClock>) -> Clock {
        clock.map_or_else(Clock::system, |clock| clock.0.clone().into())
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round().max(0.0) as u64
}

/// Seconds as JavaScript counts them.
pub(crate) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
