//! Counters of the calls to a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of [`Traffic::durations`]; one more count is for longer calls.
pub const DURATION_BOUNDS: [Duration; 12] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

/// Calls so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many were made.
    pub calls: u64,
    /// For how many requests. Cached denials and leased tokens need none.
    pub requests: u64,
    /// Their total duration.
    pub total: Duration,
    /// How many took at most as long as each of [`DURATION_BOUNDS`] and longer than the one before; last, those
    /// beyond all bounds.
    pub durations: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    calls: AtomicU64,
    requests: AtomicU64,
    micros: AtomicU64,
    durations: [AtomicU64; DURATION_BOUNDS.len() + 1],
}

impl Counts {
    pub(super) fn count(&self, requests: usize, took: Duration) {
        self.calls.fetch_add(1, Relaxed);
        self.requests.fetch_add(requests as u64, Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Relaxed);
        let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < took);
        self.durations[bucket].fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic {
            calls: self.calls.load(Relaxed),
            requests: self.requests.load(Relaxed),
            total: Duration::from_micros(self.micros.load(Relaxed)),
            durations: self.durations.iter().map(|count| count.load(Relaxed)).collect(),
        }
    }
}
