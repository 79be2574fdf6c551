//! Outcomes of spans.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::metrics::{Family, catalog};

/// The outcome of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanOutcome {
    /// The collector accepted it.
    Exported,
    /// Too many were waiting.
    Dropped,
    /// The collector did not accept it.
    Failed,
}

const OUTCOMES: [&str; 3] = ["exported", "dropped", "failed"];

/// Spans by outcome.
#[derive(Debug, Default)]
pub(super) struct SpanCounters([AtomicU64; OUTCOMES.len()]);

impl SpanCounters {
    pub(super) fn count(&self, outcome: SpanOutcome, spans: u64) {
        self.0[outcome as usize].fetch_add(spans, Relaxed);
    }

    pub(super) fn family(&self) -> Family {
        let mut family = Family::new(&catalog::SPANS);
        for (outcome, count) in OUTCOMES.iter().zip(&self.0) {
            family.add([outcome], count.load(Relaxed));
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_as_listed() {
        use SpanOutcome::{Dropped, Exported, Failed};
        assert_eq!([Exported, Dropped, Failed].map(|outcome| OUTCOMES[outcome as usize]), OUTCOMES);
    }
}
