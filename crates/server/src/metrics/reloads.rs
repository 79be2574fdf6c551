//! Attempts to put new rules in force, and why the last one failed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::catalog;
use super::family::Family;

/// Why new rules were refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
}

/// Attempts to put new rules in force.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    accepted: AtomicU64,
    refused: AtomicU64,
    /// Kept until rules are accepted.
    last_refusal: Mutex<Option<Arc<Refusal>>>,
}

impl Reloads {
    /// Records the outcome of an attempt, and returns it.
    pub(crate) fn note<T, E: std::fmt::Display>(&self, attempt: Result<T, E>) -> Result<T, E> {
        /// In a file with very many errors, the first ones are enough.
        const LONGEST: usize = 2_000;
        let refusal = attempt.as_ref().err().map(|error| {
            let reason = error.to_string().chars().take(LONGEST).collect();
            Arc::new(Refusal { reason })
        });
        let counter = if refusal.is_some() { &self.refused } else { &self.accepted };
        counter.fetch_add(1, Relaxed);
        *self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
        attempt
    }

    pub(crate) fn refused(&self) -> Option<Arc<Refusal>> {
        self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn family(&self) -> Family {
        let mut family = Family::new(&catalog::RULES_RELOADS);
        for (outcome, count) in [("accepted", &self.accepted), ("refused", &self.refused)] {
            family.add([outcome], count.load(Relaxed));
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_stands_until_rules_are_accepted() {
        let reloads = Reloads::default();
        assert!(reloads.note(Err::<(), _>("rules.yaml: no")).is_err());
        assert_eq!(reloads.refused().expect("refused").reason, "rules.yaml: no");
        assert!(reloads.note(Ok::<_, String>(())).is_ok());
        assert_eq!(reloads.refused(), None);
    }
}
