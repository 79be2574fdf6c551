//! Back-off for threads that meet on one shard again and again.
//!
//! Two threads that use one hot key would pass its cache lines to and fro with every decision, which takes several times as long as
//! deciding. A thread that was disturbed twice within a few microseconds therefore waits for about one, without looking. Meanwhile the
//! other makes dozens of decisions with all lines in its own cache. A single collision, as of two keys that happen to be in one shard,
//! costs no wait.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper_core::{Span, Timestamp};

/// When a thread was last disturbed on a shard. A wrong value costs time, never an answer, so it needs no lock.
#[derive(Debug, Default)]
pub(super) struct Contention {
    disturbed_at: AtomicU64,
}

impl Contention {
    /// Disturbances that are further apart are coincidences.
    const RECENT: Span = Span::from_micros(20);
    /// One to two microseconds on processors whose pause is long (140 cycles), less on others.
    const PAUSES: u32 = 32;

    /// Called by a thread that was disturbed, before it takes the lock.
    #[cold]
    #[inline(never)]
    pub(super) fn step_aside(&self, now: Timestamp) {
        let before = self.disturbed_at.swap(now.as_micros(), Relaxed);
        if now.as_micros().abs_diff(before) <= Self::RECENT.as_micros() {
            (0..Self::PAUSES).for_each(|_| spin_loop());
        }
    }
}
