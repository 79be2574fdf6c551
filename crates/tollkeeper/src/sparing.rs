//! Log lines that repeat while something fails, or that clients could cause without end: one at a time, with the number
//! that was left out.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
#[cfg(not(test))]
use std::time::Instant;

#[cfg(test)]
use tokio::time::Instant;

/// Allows a log line once in a while.
///
/// ```
/// use std::time::Duration;
/// use tollkeeper::sparing::Sparing;
///
/// static LINES: Sparing = Sparing::every(Duration::from_secs(60));
/// let lines: Vec<String> =
///     (0..3).filter_map(|_| LINES.turn()).map(|left_out| format!("the disk is full{left_out}")).collect();
/// assert_eq!(lines, ["the disk is full"]);
/// ```
#[derive(Debug)]
pub struct Sparing {
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Sparing {
    /// For what fails again and again, for as long as a server is unreachable.
    pub const fn while_failing() -> Sparing {
        Sparing::every(Duration::from_secs(60))
    }

    /// At most one line in this time.
    pub const fn every(pause: Duration) -> Sparing {
        Sparing { pause, state: Mutex::new(State { last: None, left_out: 0 }) }
    }

    /// Whether to log now, and how many lines were left out since the last time.
    pub fn turn(&self) -> Option<LeftOut> {
        let (mut state, now) = (self.state.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.pause) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(LeftOut(std::mem::take(&mut state.left_out)))
    }
}

/// How many lines were left out; shown at the end of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more like it since the last such line)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_left_out_is_counted_and_reported_with_the_next() {
        let sparing = Sparing::while_failing();
        let line = || sparing.turn().map(|left_out| left_out.to_string());
        assert_eq!((line().as_deref(), line(), line()), (Some(""), None, None));
        advance(Duration::from_secs(60)).await;
        assert_eq!(line().as_deref(), Some(" (2 more like it since the last such line)"));
    }
}
