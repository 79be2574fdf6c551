//! How long decisions took, now and over time.

use schemars::JsonSchema;
use serde::Serialize;

use crate::insight::{Insight, Latency};
use crate::metrics::Metrics;

/// Decisions and how long they took.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LatencyReport {
    /// The median of the last minute, in microseconds.
    p50_us: Option<f64>,
    /// The 99th percentile of the last minute, in microseconds.
    p99_us: Option<f64>,
    /// The same for each of up to 300 seconds, the oldest first; the last has just begun.
    seconds: Quantiles,
    /// The same for each of up to 360 minutes.
    minutes: Quantiles,
}

/// Quantiles over time; null where nothing was decided. Each is the upper bound of a bucket of the histogram.
#[derive(Debug, Serialize, JsonSchema)]
struct Quantiles {
    /// Microseconds.
    p50_us: Vec<Option<f64>>,
    /// Microseconds.
    p99_us: Vec<Option<f64>>,
}

impl LatencyReport {
    pub(super) fn new(insight: Option<&Insight>, second: u64) -> LatencyReport {
        let mut minute = Latency::default();
        let seconds: Vec<Latency> = insight.into_iter().flat_map(|insight| insight.latency().seconds(second)).collect();
        let minutes = insight.into_iter().flat_map(|insight| insight.latency().minutes(second));
        seconds.iter().rev().take(60).for_each(|one| minute += one.clone());
        LatencyReport {
            p50_us: minute.quantile(0.5),
            p99_us: minute.quantile(0.99),
            seconds: Quantiles::of(seconds.into_iter()),
            minutes: Quantiles::of(minutes),
        }
    }
}

impl Quantiles {
    fn of(slots: impl Iterator<Item = Latency>) -> Quantiles {
        let (p50_us, p99_us) = slots.map(|slot| (slot.quantile(0.5), slot.quantile(0.99))).unzip();
        Quantiles { p50_us, p99_us }
    }
}

impl Latency {
    fn quantile(&self, share: f64) -> Option<f64> {
        quantile(&self.0, share, Metrics::duration_bound_us)
    }
}

/// The upper bound of the bucket that contains this quantile. Beyond the last bound, that bound is the best answer.
pub(super) fn quantile(counts: &[u64], share: f64, bound: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let mut below = 0;
    let bucket = counts.iter().position(|count| {
        below += count;
        total > 0 && below as f64 >= share * total as f64
    })?;
    bound(bucket).or_else(|| bound(counts.len() - 2))
}
