//! How many alerts were raised, and how their deliveries ended.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::alert::{KINDS, Kind, STATUSES, Status};
use crate::metrics::{Family, catalog};

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The receiver accepted it.
    Delivered,
    /// No attempt succeeded.
    Failed,
    /// Not tried: too many were waiting.
    Dropped,
}

const OUTCOMES: [&str; 3] = ["delivered", "failed", "dropped"];

/// Alerts by kind and status, and deliveries by outcome.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    alerts: [[AtomicU64; STATUSES.len()]; KINDS.len()],
    deliveries: [AtomicU64; OUTCOMES.len()],
}

impl Counters {
    pub(crate) fn count(&self, kind: Kind, status: Status) {
        self.alerts[kind as usize][status as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_delivery(&self, delivery: Delivery) {
        self.deliveries[delivery as usize].fetch_add(1, Relaxed);
    }

    /// Every kind starts at 0, so that its first alert shows as an increase.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut alerts = Family::new(&catalog::ALERTS);
        for (kind, by_status) in KINDS.iter().zip(&self.alerts).filter(|(kind, _)| **kind != Kind::Test) {
            for (status, count) in STATUSES.iter().zip(by_status) {
                alerts.add([kind.name(), status.name()], count.load(Relaxed));
            }
        }
        let mut deliveries = Family::new(&catalog::ALERT_DELIVERIES);
        for (outcome, count) in OUTCOMES.iter().zip(&self.deliveries) {
            deliveries.add([outcome], count.load(Relaxed));
        }
        vec![alerts, deliveries]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_as_listed() {
        let names =
            [Delivery::Delivered, Delivery::Failed, Delivery::Dropped].map(|outcome| OUTCOMES[outcome as usize]);
        assert_eq!(names, ["delivered", "failed", "dropped"]);
    }
}
