//! A clock that stands still, for tests.

use pyo3::prelude::*;
use tollkeeper::{Clock, Span, Timestamp};

use crate::errors::raise;

/// A clock that stands still until it is moved: give it to `keyed` or to a `Limiter` in tests.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct ManualClock(tollkeeper::ManualClock);

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (now=1_700_000_000.0))]
    fn new(now: f64) -> ManualClock {
        ManualClock(tollkeeper::ManualClock::at(Timestamp::from_micros(micros(now))))
    }

    /// Moves on by this many seconds.
    fn advance(&self, seconds: f64) {
        self.0.advance(Span::from_micros(micros(seconds)));
    }

    /// Sets the time: seconds since the epoch.
    fn set(&self, now: f64) {
        self.0.set(Timestamp::from_micros(micros(now)));
    }

    /// Sets the time: whole microseconds since the epoch.
    fn set_us(&self, now: u64) {
        self.0.set(Timestamp::from_micros(now));
    }

    /// Seconds since the epoch.
    fn now(&self) -> f64 {
        seconds(self.0.now().as_micros())
    }
}

impl ManualClock {
    /// The given clock, or the machine's.
    pub(crate) fn or_system(clock: Option<&Bound<'_, ManualClock>>) -> Clock {
        clock.map_or_else(Clock::system, |clock| clock.get().0.clone().into())
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round().max(0.0) as u64
}

/// Seconds as Python counts them.
pub(crate) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A timeout from seconds, or from a text such as `20ms`.
pub(crate) fn timeout_text(time: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = time.extract::<String>() {
        return Ok(text);
    }
    let seconds: f64 = time.extract()?;
    if !(seconds.is_finite() && seconds > 0.0) {
        let problem =
            format!("timeout: {seconds} is not a duration; write seconds such as 0.02, or a string such as \"20ms\"");
        let error = tollkeeper_engine::Error::new(tollkeeper_engine::Kind::Config, problem);
        return Err(raise(time.py(), error));
    }
    Ok(format!("{}ms", (seconds * 1e3).ceil() as u64))
}
