//! A lock-free histogram of integers: each observation is one addition to a bucket and one to the sum.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::family::Distribution;

/// The upper bound of each bucket in whole units, and how many units make one of the unit shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    bounds: &'static [u64],
    units: u64,
}

/// Nanoseconds, shown as seconds. A decision in memory takes about a microsecond.
pub(super) const DURATION: Buckets = Buckets {
    bounds: &[
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        1_000_000_000,
    ],
    units: 1_000_000_000,
};

/// Microseconds, shown as seconds: how long requests wait, and how long an upstream takes.
pub(super) const RESPONSE: Buckets = Buckets {
    bounds: &[
        1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
        30_000_000, 60_000_000,
    ],
    units: 1_000_000,
};

/// Millionths, shown as a share of 1; finest near the limit.
pub(super) const RATIO: Buckets =
    Buckets { bounds: &[0, 50_000, 100_000, 200_000, 350_000, 500_000, 750_000, 1_000_000], units: 1_000_000 };

impl Buckets {
    /// The largest value of a bucket in its units, if it has one.
    pub(super) fn bound(&self, bucket: usize) -> Option<u64> {
        self.bounds.get(bucket).copied()
    }
}

/// Adds 1 to each of these counters. The same counter several times in a row is changed once, because threads have to hand over
/// the cache line of a counter for each change.
pub(super) fn count_each<'c>(counters: impl Iterator<Item = &'c AtomicU64>) {
    let mut row: Option<(&AtomicU64, u64)> = None;
    for counter in counters {
        match &mut row {
            Some((same, times)) if ptr::eq(*same, counter) => *times += 1,
            _ => {
                if let Some((counter, times)) = row.replace((counter, 1)) {
                    counter.fetch_add(times, Relaxed);
                }
            }
        }
    }
    if let Some((counter, times)) = row {
        counter.fetch_add(times, Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Buckets,
    /// One per bound, and one for values beyond all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn new(buckets: Buckets) -> Histogram {
        let counts = (0..=buckets.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, counts, sum: AtomicU64::new(0) }
    }

    /// Counts a value in the units of the buckets.
    pub(super) fn observe(&self, value: u64) {
        self.observe_times(value, 1);
    }

    /// Counts a value this many times.
    pub(super) fn observe_times(&self, value: u64, times: u64) {
        self.bucket_of(value).fetch_add(times, Relaxed);
        self.sum.fetch_add(value.wrapping_mul(times), Relaxed);
    }

    /// Counts each of these values.
    pub(super) fn observe_each(&self, values: impl Iterator<Item = u64>) {
        let mut sum = 0;
        count_each(values.inspect(|value| sum += value).map(|value| self.bucket_of(value)));
        if sum > 0 {
            self.sum.fetch_add(sum, Relaxed);
        }
    }

    fn bucket_of(&self, value: u64) -> &AtomicU64 {
        &self.counts[self.buckets.bounds.partition_point(|bound| *bound < value)]
    }

    /// How many values each bucket holds.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Relaxed)).collect()
    }

    pub(super) fn distribution(&self) -> Distribution {
        let Buckets { bounds, units } = self.buckets;
        let shown = |value: u64| value as f64 / units as f64;
        Distribution {
            bounds: bounds.iter().map(|bound| shown(*bound)).collect(),
            counts: self.counts(),
            sum: shown(self.sum.load(Relaxed)),
        }
    }
}
