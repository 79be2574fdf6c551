//! Rate-limited log lines, for those that clients could cause without end: one at a time, with the number suppressed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Allows a log line once in a while.
#[derive(Debug)]
pub(crate) struct Sparing {
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Sparing {
    pub(crate) const fn every(pause: Duration) -> Sparing {
        Sparing { pause, state: Mutex::new(State { last: None, left_out: 0 }) }
    }

    /// Whether to log now, and how many lines were suppressed since the last time.
    pub(crate) fn turn(&self) -> Option<LeftOut> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| last.elapsed() < self.pause) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(Instant::now());
        Some(LeftOut(std::mem::take(&mut state.left_out)))
    }
}

/// How many lines were suppressed; shown at the end of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more like it since the last such line)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_and_reported_with_the_next() {
        let sparing = Sparing::every(Duration::from_millis(50));
        assert_eq!(sparing.turn().map(|it| it.to_string()).as_deref(), Some(""));
        assert_eq!((sparing.turn(), sparing.turn()), (None, None));
        std::thread::sleep(Duration::from_millis(60));
        let suffix = sparing.turn().map(|it| it.to_string());
        assert_eq!(suffix.as_deref(), Some(" (2 more like it since the last such line)"));
    }
}
