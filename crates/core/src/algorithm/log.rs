//! `sliding_window_log` and `concurrency`: every admitted request is remembered until it leaves the window, or
//! until its hold expires, which is the same law. A hold can also be released before.

use std::collections::VecDeque;

use super::{Change, jumped_back};
use crate::decision::{Decision, Hold, Outcome};
use crate::quota::{Algorithm, Quota};
use crate::time::{Span, Timestamp};

/// One admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was admitted, and which of that microsecond's it is.
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

    pub(super) fn record(&mut self, entry: Entry, expired: Option<Timestamp>) {
        if let Some(expired) = expired {
            while let Some(oldest) = self.entries.front().filter(|oldest| oldest.hold.at <= expired) {
                self.total -= u64::from(oldest.cost);
                self.entries.pop_front();
            }
        }
        self.total += u64::from(entry.cost);
        // Almost always at the end; a clock that ran back puts it in its place.
        let place = self.entries.partition_point(|other| other.hold <= entry.hold);
        match place.checked_sub(1).and_then(|before| self.entries.get_mut(before)) {
            // Requests of a `sliding_window_log` in one microsecond are one entry.
            Some(same) if same.hold == entry.hold => same.cost += entry.cost,
            _ => self.entries.insert(place, entry),
        }
    }

    /// Moves what lies in the future of `now` to `now`.
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

    /// Holds a slot that has not expired for another whole window, from `now` on. Nothing is admitted: what counts stays the
    /// same, for longer. Where something was admitted later than `now`, by a clock that has run back, it stays as it is.
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

    /// Takes `cost` off an entry, and the entry away when nothing is left of it.
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

    /// Records `cost` at `now` whether it fits or not, as far as the log then holds at most twice the limit.
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

    fn next_nth(&self, at: Timestamp) -> u32 {
        let after = self.entries.partition_point(|entry| entry.hold.at <= at);
        match after.checked_sub(1).map(|index| self.entries[index].hold) {
            Some(hold) if hold.at == at => hold.nth + 1,
            _ => 0,
        }
    }

    /// What still counts at `now`, and from which entry on.
    fn live(&self, now: Timestamp, window: Span) -> (u64, usize) {
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
    fn freed_at(&self, first: usize, needed: u64, window: Span) -> Timestamp {
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

pub(super) fn decide(quota: &Quota, cost: u32, log: Option<&Log>, now: Timestamp) -> (Decision, Change) {
    let empty = Log::default();
    let log = log.unwrap_or(&empty);
    let jumped = log.last().is_some_and(|last| jumped_back(last, now, quota.period()));
    if !jumped {
        return decide_in_order(quota, cost, log, now);
    }
    let mut rebased = log.clone();
    rebased.rebase(now);
    match decide_in_order(quota, cost, &rebased, now) {
        // As everywhere, what only looks or can never pass leaves no trace.
        (decision, Change::None) if (1..=quota.limit()).contains(&cost) => (decision, Change::Rebase(now)),
        (decision, Change::None) => (decision, Change::None),
        (decision, change) => {
            let mut state = super::State::Log(rebased);
            state.apply(change);
            (decision, Change::Replace(state))
        }
    }
}

fn decide_in_order(quota: &Quota, cost: u32, log: &Log, now: Timestamp) -> (Decision, Change) {
    let window = quota.period();
    let limit = u64::from(quota.limit());
    let (used, first) = log.live(now, window);
    let used_until = if used == 0 { None } else { log.last() };
    let answer = |outcome, used: u64, last: Option<Timestamp>| Decision {
        outcome,
        limit: quota.limit(),
        remaining: limit.saturating_sub(used) as u32,
        reset_after: last.map_or(Span::ZERO, |last| (last + window).since(now)),
        hold: None,
    };
    if cost > quota.limit() {
        return (answer(Outcome::NEVER, used, used_until), Change::None);
    }
    let charged = used + u64::from(cost);
    if cost == 0 {
        return (answer(Outcome::ALLOWED, used, used_until), Change::None);
    }
    if charged > limit {
        let wait = log.freed_at(first, charged - limit, window).since(now);
        return (answer(Outcome::denied_for(wait), used, used_until), Change::None);
    }
    let is_hold = quota.algorithm() == Algorithm::Concurrency;
    let hold = Hold { at: now, nth: if is_hold { log.next_nth(now) } else { 0 } };
    let last = log.last().filter(|_| used > 0).map_or(now, |last| last.max(now));
    let decision = Decision { hold: is_hold.then_some(hold), ..answer(Outcome::ALLOWED, charged, Some(last)) };
    // Everything admitted a window ago or earlier has left: (now - window, now] is what counts.
    let expired = now.as_micros().checked_sub(window.as_micros()).map(Timestamp::from_micros);
    (decision, Change::Record { entry: Entry { hold, cost }, expired })
}
