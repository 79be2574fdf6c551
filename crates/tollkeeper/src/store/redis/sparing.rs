//! Log lines that repeat while something fails: one at a time, with the number that was left out.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::instant::Instant;

/// Allows a log line once in a while.
#[derive(Debug)]
pub(super) struct Sparing {
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
    pub(super) const fn while_failing() -> Sparing {
        Sparing::every(Duration::from_secs(60))
    }

    pub(super) const fn every(pause: Duration) -> Sparing {
        Sparing { pause, state: Mutex::new(State { last: None, left_out: 0 }) }
    }

    /// Whether to log now, and how many lines were left out since the last time.
    pub(super) fn turn(&self) -> Option<LeftOut> {
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
pub(super) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more like it since the last such line)"),
        }
    }
}

/// The lines about one server that stops answering and answers again. Of a server that flaps, some outages are left out,
/// each with both of its lines, so that the last line always says how things are.
#[derive(Debug)]
pub(super) struct Outages {
    begins: Sparing,
    attempts: Sparing,
    is_logged: Mutex<bool>,
}

impl Outages {
    pub(super) fn new() -> Outages {
        Outages {
            begins: Sparing::every(Duration::from_secs(10)),
            attempts: Sparing::while_failing(),
            is_logged: Mutex::new(false),
        }
    }

    /// It stopped answering: whether to log that.
    pub(super) fn begin(&self) -> Option<LeftOut> {
        let turn = self.begins.turn();
        *self.is_logged.lock().unwrap_or_else(PoisonError::into_inner) |= turn.is_some();
        turn
    }

    /// It cannot be reached yet: whether to log that.
    pub(super) fn attempt(&self) -> Option<LeftOut> {
        self.attempts.turn()
    }

    /// It answers again: whether to log that.
    pub(super) fn end(&self) -> bool {
        std::mem::take(&mut *self.is_logged.lock().unwrap_or_else(PoisonError::into_inner))
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

    #[tokio::test(start_paused = true)]
    async fn the_last_line_says_whether_the_server_answers() {
        let outages = Outages::new();
        assert!(outages.begin().is_some() && outages.end(), "the first outage has both lines");
        assert!(outages.begin().is_none() && !outages.end(), "the next one has none");
        advance(Duration::from_secs(10)).await;
        assert_eq!(outages.begin(), Some(LeftOut(1)));
        assert!(outages.end());
    }
}
