//! Decisions made without the store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper::{Row, Source};

/// How many decisions were made without the store, by failure policy.
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

/// The live counters.
#[derive(Debug, Default)]
pub(super) struct WithoutStoreCounters {
    open: AtomicU64,
    closed: AtomicU64,
    local: AtomicU64,
}

impl WithoutStoreCounters {
    /// Does nothing for decisions that the store made.
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
