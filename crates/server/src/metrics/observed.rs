//! What the counters tell those who look at traffic over time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper::{Rule, Source};

use super::{DURATION, Metrics, RuleSeries};

impl Metrics {
    /// What each rule has let pass and denied so far. Where the store could not answer, nobody was at a limit.
    pub(crate) fn outcomes(&self) -> Vec<(Arc<Rule>, u64, u64)> {
        let table = self.rules.load();
        let throttle = Some(&self.throttle).filter(|series| series.is_used());
        let all = table.in_order.iter().map(|series| &**series).chain(throttle);
        all.map(|series| (series.rule.clone(), series.allowed(), series.denied())).collect()
    }

    /// The rule that stands for `CL.THROTTLE`, where that is used.
    pub(crate) fn throttle_rule(&self) -> Option<&Rule> {
        Some(&*self.throttle.rule).filter(|_| self.throttle.is_used())
    }

    /// How many decisions ended in each bucket of the histogram.
    pub(crate) fn durations(&self) -> Vec<u64> {
        self.check_duration.counts.iter().map(|count| count.load(Relaxed)).collect()
    }

    /// The upper bound of such a bucket in microseconds, if it has one.
    pub(crate) fn duration_bound_us(bucket: usize) -> Option<f64> {
        DURATION.bounds.get(bucket).map(|(nanos, _)| *nanos as f64 / 1_000.0)
    }
}

impl RuleSeries {
    fn allowed(&self) -> u64 {
        self.decisions[0].iter().map(|count| count.load(Relaxed)).sum()
    }

    fn denied(&self) -> u64 {
        let known = |by_source: &[AtomicU64]| -> u64 {
            let sources = Source::ALL.iter().zip(by_source).filter(|(source, _)| **source != Source::Policy);
            sources.map(|(_, count)| count.load(Relaxed)).sum()
        };
        self.decisions[1..].iter().map(|by_source| known(by_source)).sum()
    }
}
