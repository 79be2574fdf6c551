//! What was told, and what there was to tell.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tollkeeper::{Row, Source};

use super::Page;
use crate::alerts::{KINDS, Kind, Outcome, STATUSES, Status};

const OUTCOMES: [&str; 3] = ["delivered", "failed", "dropped"];

/// Alerts by kind and status, and what became of those for the webhook.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    told: [[AtomicU64; STATUSES.len()]; KINDS.len()],
    deliveries: [AtomicU64; OUTCOMES.len()],
}

impl Alerts {
    pub(crate) fn count(&self, kind: Kind, status: Status) {
        self.told[kind as usize][status as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_delivery(&self, outcome: Outcome) {
        self.deliveries[outcome as usize].fetch_add(1, Relaxed);
    }

    /// All kinds start at 0, so that the first of each is seen as a rise.
    pub(super) fn write(&self, page: &mut Page) {
        page.family("tollkeeper_alerts_total", "counter", "Alerts that were told, to the log in any case.");
        for (kind, by_status) in KINDS.iter().zip(&self.told).filter(|(kind, _)| **kind != Kind::Test) {
            for (status, count) in STATUSES.iter().zip(by_status) {
                let labels = format!("kind=\"{}\",status=\"{}\"", kind.name(), status.name());
                page.sample("tollkeeper_alerts_total", &labels, count.load(Relaxed));
            }
        }
        page.family("tollkeeper_alert_deliveries_total", "counter", "What became of alerts for the webhook.");
        for (outcome, count) in OUTCOMES.iter().zip(&self.deliveries) {
            page.sample("tollkeeper_alert_deliveries_total", &format!("outcome=\"{outcome}\""), count.load(Relaxed));
        }
    }
}

/// How many decisions were made without the store, by what rules say for that case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WithoutStore {
    pub(crate) open: u64,
    pub(crate) closed: u64,
    pub(crate) local: u64,
}

impl WithoutStore {
    pub(crate) fn total(&self) -> u64 {
        self.open + self.closed + self.local
    }

    pub(crate) fn since(&self, before: &WithoutStore) -> WithoutStore {
        WithoutStore {
            open: self.open.saturating_sub(before.open),
            closed: self.closed.saturating_sub(before.closed),
            local: self.local.saturating_sub(before.local),
        }
    }
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(super) struct WithoutStoreCounts {
    open: AtomicU64,
    closed: AtomicU64,
    local: AtomicU64,
}

impl WithoutStoreCounts {
    /// Touches nothing for what the store decided.
    pub(super) fn count(&self, row: &Row) {
        let counter = match row.source {
            Source::Local => &self.local,
            Source::Policy if row.decision.is_allowed() => &self.open,
            Source::Policy => &self.closed,
            _ => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> WithoutStore {
        let [open, closed, local] = [&self.open, &self.closed, &self.local].map(|count| count.load(Relaxed));
        WithoutStore { open, closed, local }
    }
}

/// Why rules that were to come into force did not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
}

/// Attempts to put other rules in force.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    accepted: AtomicU64,
    refused: AtomicU64,
    /// Until others are accepted.
    last_refusal: Mutex<Option<Arc<Refusal>>>,
}

impl Reloads {
    /// Takes note of how an attempt ended, and gives it back.
    pub(crate) fn note<T, E: std::fmt::Display>(&self, attempt: Result<T, E>) -> Result<T, E> {
        /// A file with very many mistakes says enough with the first ones.
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

    pub(super) fn write(&self, page: &mut Page) {
        page.family("tollkeeper_rules_reloads_total", "counter", "Attempts to put other rules in force.");
        for (outcome, count) in [("accepted", &self.accepted), ("refused", &self.refused)] {
            page.sample("tollkeeper_rules_reloads_total", &format!("outcome=\"{outcome}\""), count.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_as_listed() {
        let names = [Outcome::Delivered, Outcome::Failed, Outcome::Dropped].map(|outcome| OUTCOMES[outcome as usize]);
        assert_eq!(names, ["delivered", "failed", "dropped"]);
    }

    #[test]
    fn a_refusal_stands_until_rules_are_accepted() {
        let reloads = Reloads::default();
        assert!(reloads.note(Err::<(), _>("rules.yaml: no")).is_err());
        assert_eq!(reloads.refused().expect("refused").reason, "rules.yaml: no");
        assert!(reloads.note(Ok::<_, String>(())).is_ok());
        assert_eq!(reloads.refused(), None);
    }
}
