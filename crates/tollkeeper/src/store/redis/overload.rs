//! Load shedding: bounds how many requests wait for a decision, and for how long.
//!
//! Waiting for a turn is our own overload and never counts as a failure of the store. It ends in a turn, or in an
//! error of its own ([`Overloaded`]), so a flood cannot switch limits off.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::instant::Instant;
use crate::store::error::Overloaded;

/// How many requests wait, and how many were shed.
#[derive(Debug)]
pub(super) struct Overload {
    waiting: AtomicUsize,
    patience: Duration,
    shed: AtomicU64,
    last_line: Mutex<Option<LastLine>>,
}

/// What was last logged.
#[derive(Clone, Copy, Debug)]
struct LastLine {
    at: Instant,
    shed: u64,
}

/// The place of a waiting request.
#[derive(Debug)]
pub(super) struct Place<'o>(&'o Overload);

impl Overload {
    /// The most requests that may wait for the store at the same time.
    const MOST: usize = 16_384;
    /// From here on a late reply is no proof that the server failed.
    const CROWD: usize = 64;
    /// The longest wait for a turn, if the deadline of calls is short.
    const PATIENCE: Duration = Duration::from_millis(100);
    /// The shortest time between two log lines.
    const LOG_EVERY: Duration = Duration::from_secs(10);

    pub(super) fn new(deadline: Duration) -> Overload {
        let patience = Overload::patience_for(deadline);
        Overload { waiting: AtomicUsize::new(0), patience, shed: AtomicU64::new(0), last_line: Mutex::default() }
    }

    /// How long a request may wait for its turn, given the deadline of calls.
    pub(super) fn patience_for(deadline: Duration) -> Duration {
        Overload::PATIENCE.max(2 * deadline)
    }

    /// How long a request may wait for its turn.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// How many requests were shed.
    pub(super) fn count(&self) -> u64 {
        self.shed.load(Relaxed)
    }

    /// Whether so many wait that lateness may be our own.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.load(Relaxed) >= Overload::CROWD
    }

    /// Takes a place, if there is one left.
    pub(super) fn enter(&self) -> Result<Place<'_>, Overloaded> {
        let place = Place(self);
        if self.waiting.fetch_add(1, Relaxed) < Overload::MOST { Ok(place) } else { Err(self.shed(1)) }
    }

    /// Counts this many shed requests, and logs that now and then.
    pub(super) fn shed(&self, requests: u64) -> Overloaded {
        let shed = self.shed.fetch_add(requests, Relaxed) + requests;
        let now = Instant::now();
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last_line.map_or(0, |last_line| last_line.shed);
        if last_line.is_none_or(|last_line| now.saturating_duration_since(last_line.at) >= Overload::LOG_EVERY) {
            *last_line = Some(LastLine { at: now, shed });
            drop(last_line);
            tracing::warn!(
                "overloaded: {} requests were shed, since {} others were waiting for the store, or they would have waited \
                 for longer than {:?}; the limits stay in force. Add instances or CPU, or use `lease: auto`",
                shed - before,
                self.waiting.load(Relaxed),
                self.patience,
            );
        }
        Overloaded::new()
    }
}

impl Place<'_> {
    /// Whether no other request waits.
    pub(super) fn is_alone(&self) -> bool {
        self.0.waiting.load(Relaxed) == 1
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_wait_as_there_are_places() {
        let overload = Overload::new(Duration::from_millis(20));
        let mut places: Vec<_> = (0..Overload::MOST).map(|_| overload.enter().expect("a place")).collect();
        assert!(overload.enter().is_err());
        assert!(overload.enter().is_err(), "who was shed takes no place");
        places.pop();
        assert!(overload.enter().is_ok());
        assert_eq!(overload.count(), 2);
    }

    #[test]
    fn patience_grows_with_the_deadline() {
        let patience = |ms| Overload::patience_for(Duration::from_millis(ms));
        assert_eq!(patience(20), Duration::from_millis(100));
        assert_eq!(patience(500), Duration::from_secs(1));
    }
}
