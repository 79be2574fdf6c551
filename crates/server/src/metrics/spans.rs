//! What became of the spans that were to be sent to a collector.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Page;

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanOutcome {
    /// The collector has it.
    Exported,
    /// Too many were waiting.
    Dropped,
    /// The collector did not take it.
    Failed,
}

const OUTCOMES: [&str; 3] = ["exported", "dropped", "failed"];

/// Spans by outcome.
#[derive(Debug, Default)]
pub(crate) struct Spans([AtomicU64; OUTCOMES.len()]);

impl Spans {
    pub(crate) fn count(&self, outcome: SpanOutcome, spans: u64) {
        self.0[outcome as usize].fetch_add(spans, Relaxed);
    }

    pub(crate) fn write(&self, page: &mut Page) {
        page.family("tollkeeper_spans_total", "counter", "What became of spans for the collector.");
        for (outcome, count) in OUTCOMES.iter().zip(&self.0) {
            page.sample("tollkeeper_spans_total", &format!("outcome=\"{outcome}\""), count.load(Relaxed));
        }
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
