//! Log lines about a server that stops answering, and answers again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::sparing::{LeftOut, Sparing};

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
    async fn the_last_line_says_whether_the_server_answers() {
        let outages = Outages::new();
        assert!(outages.begin().is_some() && outages.end(), "the first outage has both lines");
        assert!(outages.begin().is_none() && !outages.end(), "the next one has none");
        advance(Duration::from_secs(10)).await;
        let begins = outages.begin().map(|left_out| left_out.to_string());
        assert_eq!(begins.as_deref(), Some(" (1 more like it since the last such line)"));
        assert!(outages.end());
    }
}
