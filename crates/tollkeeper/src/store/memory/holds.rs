//! The refunds of buckets with unsettled estimates, and the records of those estimates.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tollkeeper_core::{Refunds, Span, Timestamp};

use super::identity::Id;

/// Behind one lock: settling is rare compared to deciding.
#[derive(Debug, Default)]
pub(super) struct Holds {
    refunded: Lasting<Id, Refunds>,
    records: Lasting<String, Vec<u8>>,
}

/// Entries that expire.
#[derive(Debug)]
struct Lasting<K, V> {
    entries: HashMap<K, (V, Timestamp)>,
    /// The size at which expired entries are removed.
    sweep_at: usize,
}

impl Holds {
    /// The most unsettled estimates at a time: a bound on memory.
    const MOST_RECORDS: usize = 100_000;
    /// The most buckets whose refunds are tracked.
    const MOST_WATCHED: usize = 1_000_000;

    /// Starts tracking the refunds of a bucket and returns what was counted before; `None` when there are too many.
    pub(super) fn watch(&mut self, id: Id, lifetime: Duration, now: Timestamp) -> Option<u64> {
        self.refunded.sweep(now);
        if self.refunded.entries.len() >= Holds::MOST_WATCHED && !self.refunded.entries.contains_key(&id) {
            return None;
        }
        let (refunds, until) = self.refunded.entries.entry(id).or_default();
        *until = (*until).max(now + Span::from(lifetime));
        Some(refunds.total())
    }

    /// The refunds of earlier charges since a charge of this moment.
    pub(super) fn since(&self, id: Id, charged: Timestamp, before: u64) -> u64 {
        self.refunded.entries.get(&id).map_or(0, |(refunds, _)| refunds.since(charged, before))
    }

    /// Counts a refund of a charge of this moment, if the key is tracked.
    pub(super) fn count(&mut self, id: Id, charged: Timestamp, back: u32) {
        if let Some((refunds, _)) = self.refunded.entries.get_mut(&id).filter(|_| back > 0) {
            refunds.add(charged, back.into());
        }
    }

    /// The key was reset, which refunds everything charged before.
    pub(super) fn reset(&mut self, id: Id) {
        if let Some((refunds, _)) = self.refunded.entries.get_mut(&id) {
            refunds.reset();
        }
    }

    /// False when there are too many.
    pub(super) fn keep(&mut self, id: &str, record: &[u8], lifetime: Duration, now: Timestamp) -> bool {
        self.records.sweep(now);
        if self.records.entries.len() >= Holds::MOST_RECORDS {
            self.records.sweep_now(now);
        }
        if self.records.entries.len() >= Holds::MOST_RECORDS {
            return false;
        }
        self.records.entries.insert(id.to_string(), (record.to_vec(), now + Span::from(lifetime)));
        true
    }

    pub(super) fn claim(&mut self, id: &str, now: Timestamp) -> Option<Vec<u8>> {
        self.records.entries.remove(id).filter(|(_, until)| *until > now).map(|(record, _)| record)
    }
}

impl<K, V> Default for Lasting<K, V> {
    fn default() -> Self {
        Lasting { entries: HashMap::new(), sweep_at: 1_024 }
    }
}

impl<K: Hash + Eq, V> Lasting<K, V> {
    /// Removes expired entries whenever the map has doubled since the last time.
    fn sweep(&mut self, now: Timestamp) {
        if self.entries.len() >= self.sweep_at {
            self.sweep_now(now);
        }
    }

    fn sweep_now(&mut self, now: Timestamp) {
        self.entries.retain(|_, (_, until)| *until > now);
        self.sweep_at = (2 * self.entries.len()).max(1_024);
    }
}
