//! The log of a key's admitted requests. A hold among them can be released or renewed.

use std::collections::VecDeque;

use super::jump::jumped_back;
use crate::decision::Hold;
use crate::quota::Quota;
use crate::time::{Span, Timestamp};

/// One admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was admitted, and its number within that microsecond.
    pub hold: Hold,
    /// What it cost.
    pub cost: u32,
}

/// The admitted requests of one key, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// The sum of all costs, so that a decision need not add up the whole log.
    total: u64,
}

/// A log of these entries, which are in the order of their holds.
impl FromIterator<Entry> for Log {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Log {
        let entries: VecDeque<Entry> = entries.into_iter().collect();
        let total = entries.iter().map(|entry| u64::from(entry.cost)).sum();
        Log { entries, total }
    }
}

impl Log {
    /// When the newest entry was admitted.
    pub fn last(&self) -> Option<Timestamp> {
        self.entries.back().map(|entry| entry.hold.at)
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The sum of all costs.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What the log takes in memory, for stores that bound it.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries fit into its allocated memory.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Allocates room for exactly this many entries, and no fewer than there are.
    pub fn set_capacity(&mut self, entries: usize) {
        self.entries.shrink_to(entries);
        self.entries.reserve_exact(entries.saturating_sub(self.entries.len()));
    }

    /// Reduces the log to at most `most` entries, for stores that have no memory for more: entries before `expired` are
    /// dropped, and entries that are close to each other are merged at the latest of their times. So each cost counts for
    /// a little longer than necessary, and never for less.
    ///
    /// For `sliding_window_log` only: a slot of `concurrency` is released by its own name.
    pub fn thin_out(&mut self, expired: Option<Timestamp>, window: Span, most: usize) {
        self.drop_expired(expired);
        // The entries of one window touch at most one more cell than a window has.
        let mut cell = window.as_micros().div_ceil(most.saturating_sub(1).max(1) as u64).max(1);
        while self.entries.len() > most.max(1) {
            let mut last = 0;
            for index in 1..self.entries.len() {
                let (before, entry) = (self.entries[last], self.entries[index]);
                if before.hold.at.as_micros() / cell == entry.hold.at.as_micros() / cell {
                    self.entries[last] = Entry { cost: before.cost.saturating_add(entry.cost), ..entry };
                } else {
                    last += 1;
                    self.entries[last] = entry;
                }
            }
            self.entries.truncate(last + 1);
            cell = cell.saturating_mul(2);
        }
    }

    fn drop_expired(&mut self, expired: Option<Timestamp>) {
        let Some(expired) = expired else { return };
        while let Some(oldest) = self.entries.front().filter(|oldest| oldest.hold.at <= expired) {
            self.total -= u64::from(oldest.cost);
            self.entries.pop_front();
        }
    }

    pub(super) fn record(&mut self, entry: Entry, expired: Option<Timestamp>) {
        self.drop_expired(expired);
        self.total += u64::from(entry.cost);
        // Almost always at the end, unless the clock ran back.
        let place = self.entries.partition_point(|other| other.hold <= entry.hold);
        match place.checked_sub(1).and_then(|before| self.entries.get_mut(before)) {
            // Requests of a `sliding_window_log` in one microsecond are one entry.
            Some(same) if same.hold == entry.hold => same.cost += entry.cost,
            _ => self.entries.insert(place, entry),
        }
    }

    /// Moves entries that lie after `now` to `now`.
    pub(super) fn rebase(&mut self, now: Timestamp) {
        let first = self.entries.partition_point(|entry| entry.hold.at <= now);
        let next = self.next_nth(now);
        for (nth, entry) in (next..).zip(self.entries.range_mut(first..)) {
            entry.hold = Hold { at: now, nth };
        }
    }

    pub(super) fn release(&mut self, hold: Hold) -> bool {
        self.reduce(hold, u32::MAX)
    }

    /// Holds a slot that has not expired for another whole window from `now` on. Nothing new is admitted. If
    /// something was admitted after `now`, because the clock ran back, the hold stays unchanged.
    pub(super) fn renew(&mut self, hold: Hold, now: Timestamp, window: Span) -> Option<Hold> {
        let index = self.entries.binary_search_by_key(&hold, |entry| entry.hold).ok()?;
        if hold.at + window <= now {
            return None;
        }
        if hold.at == now || self.last() > Some(now) {
            return Some(hold);
        }
        let renewed = Hold { at: now, nth: self.next_nth(now) };
        let entry = self.entries.remove(index)?;
        self.entries.push_back(Entry { hold: renewed, ..entry });
        Some(renewed)
    }

    /// Takes `cost` off an entry, and removes the entry when nothing is left of it.
    pub(super) fn reduce(&mut self, hold: Hold, cost: u32) -> bool {
        let Ok(index) = self.entries.binary_search_by_key(&hold, |entry| entry.hold) else { return false };
        let entry = &mut self.entries[index];
        let taken = cost.min(entry.cost);
        entry.cost -= taken;
        self.total -= u64::from(taken);
        if entry.cost == 0 {
            self.entries.remove(index);
        }
        true
    }

    /// Records `cost` at `now` whether it fits or not, up to twice the limit in total.
    pub(super) fn overdraw(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let window = quota.period();
        if self.last().is_some_and(|last| jumped_back(last, now, window)) {
            self.rebase(now);
        }
        let (used, _) = self.live(now, window);
        let room = (2 * u64::from(quota.limit())).saturating_sub(used).min(u64::from(cost)) as u32;
        if room > 0 {
            let expired = now.as_micros().checked_sub(window.as_micros()).map(Timestamp::from_micros);
            self.record(Entry { hold: Hold { at: now, nth: 0 }, cost: room }, expired);
        }
    }

    pub(super) fn next_nth(&self, at: Timestamp) -> u32 {
        let after = self.entries.partition_point(|entry| entry.hold.at <= at);
        match after.checked_sub(1).map(|index| self.entries[index].hold) {
            Some(hold) if hold.at == at => hold.nth + 1,
            _ => 0,
        }
    }

    /// What still counts at `now`, and the first entry that does.
    pub(super) fn live(&self, now: Timestamp, window: Span) -> (u64, usize) {
        let mut total = self.total;
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.hold.at + window > now {
                return (total, index);
            }
            total -= u64::from(entry.cost);
        }
        (total, self.entries.len())
    }

    /// When enough of the oldest entries from `first` on have left to free `needed`.
    pub(super) fn freed_at(&self, first: usize, needed: u64, window: Span) -> Timestamp {
        let mut freed = 0;
        for entry in self.entries.range(first..) {
            freed += u64::from(entry.cost);
            if freed >= needed {
                return entry.hold.at + window;
            }
        }
        unreachable!("a cost within the limit fits once the whole log is gone")
    }
}
