//! How many alerts there were, and what became of those for the webhook.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{KINDS, Kind, Outcome, STATUSES, Status};
use crate::metrics::Page;

const OUTCOMES: [&str; 3] = ["delivered", "failed", "dropped"];

/// Alerts by kind and status, and what became of those for the webhook.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    alerts: [[AtomicU64; STATUSES.len()]; KINDS.len()],
    deliveries: [AtomicU64; OUTCOMES.len()],
}

impl Counters {
    pub(crate) fn count(&self, kind: Kind, status: Status) {
        self.alerts[kind as usize][status as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_delivery(&self, outcome: Outcome) {
        self.deliveries[outcome as usize].fetch_add(1, Relaxed);
    }

    /// All kinds start at 0, so that the first of each is seen as a rise.
    pub(crate) fn write(&self, page: &mut Page) {
        page.family("tollkeeper_alerts_total", "counter", "Alerts raised. Each is in the log too.");
        for (kind, by_status) in KINDS.iter().zip(&self.alerts).filter(|(kind, _)| **kind != Kind::Test) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_as_listed() {
        let names = [Outcome::Delivered, Outcome::Failed, Outcome::Dropped].map(|outcome| OUTCOMES[outcome as usize]);
        assert_eq!(names, ["delivered", "failed", "dropped"]);
    }
}
