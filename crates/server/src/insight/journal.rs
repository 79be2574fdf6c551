//! Every request of some of a rule's keys over the last hours, so that other numbers can be tried on them.
//!
//! The keys are a uniform sample by hash, like [`super::sample`], so busy and quiet ones are in it alike. Memory is
//! bounded: with more requests, first fewer keys are kept, and then fewer hours.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use tollkeeper::{Charge, Clock, Key, ManualClock, MemoryStore, Rule, Span, Timestamp};

/// Requests that are kept.
const ROOM: usize = 16_384;
/// With fewer keys than this, requests that are long ago are dropped rather than keys.
const FEWEST_KEYS: usize = 200;
/// How far back it goes.
const HOURS: Span = Span::from_secs(6 * 3_600);

/// The requests, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    requests: VecDeque<Remembered>,
    /// Keys with this hash or above are left out.
    bar: Option<u64>,
    /// From when on nothing of the keys is missing.
    since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    at: Timestamp,
    key: u64,
    cost: u32,
    denied: bool,
}

/// What a rule would have decided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Replayed {
    /// The time covered, in seconds.
    pub(crate) seconds: u64,
    pub(crate) requests: u64,
    /// Those that it would have denied.
    pub(crate) denied: u64,
    /// Those that were denied in fact.
    pub(crate) denied_before: u64,
    pub(crate) keys: u64,
    pub(crate) keys_denied: u64,
    /// Whether these are all requests of that time.
    pub(crate) exact: bool,
}

impl Journal {
    pub(super) fn since(now: Timestamp) -> Journal {
        Journal { requests: VecDeque::new(), bar: None, since: now }
    }

    pub(super) fn add(&mut self, at: Timestamp, key: u64, cost: u32, denied: bool) {
        if self.bar.is_some_and(|bar| key >= bar) {
            return;
        }
        if self.requests.len() >= ROOM {
            self.make_room(at);
        }
        // Making room may have raised the bar above this key.
        if self.bar.is_none_or(|bar| key < bar) {
            self.requests.push_back(Remembered { at, key, cost, denied });
        }
    }

    fn make_room(&mut self, now: Timestamp) {
        self.forget_old(now);
        if self.requests.len() < ROOM {
            return;
        }
        let mut keys: Vec<u64> =
            self.requests.iter().map(|one| one.key).collect::<HashSet<u64>>().into_iter().collect();
        if keys.len() >= FEWEST_KEYS {
            let middle = keys.len() / 2;
            let bar = *keys.select_nth_unstable(middle).1;
            self.bar = Some(bar);
            self.requests.retain(|one| one.key < bar);
        }
        if self.requests.len() > ROOM - ROOM / 4 {
            self.requests.drain(..ROOM / 4);
            self.since = self.requests.front().map_or(now, |one| one.at);
        }
    }

    fn forget_old(&mut self, now: Timestamp) {
        let old = |one: &Remembered| now.since(one.at) > HOURS;
        let count = self.requests.iter().take_while(|one| old(one)).count();
        self.requests.drain(..count);
        if now.since(self.since) > HOURS {
            self.since = Timestamp::from_micros(now.as_micros() - HOURS.as_micros());
        }
    }

    /// Runs the requests against a rule's numbers, with its own algorithm in a store of its own.
    pub(crate) fn replay(mut self, rule: Rule, now: Timestamp) -> Replayed {
        self.forget_old(now);
        let keys: HashSet<u64> = self.requests.iter().map(|one| one.key).collect();
        let clock = ManualClock::at(self.since);
        let store = MemoryStore::with(keys.len() + 64, Clock::from(clock.clone()));
        let rule = Arc::new(rule);
        let (mut denied, mut keys_denied, mut last) = (0, HashSet::new(), self.since);
        for Remembered { at, key, cost, .. } in &self.requests {
            // Notes of several threads may be read out of order.
            last = last.max(*at);
            clock.set(last);
            let charge = Charge::new(rule.clone(), Key { variant: 0, value: format!("{key:016x}") }, *cost);
            let is_denied = store.charge(&[charge]).is_ok_and(|decided| !decided[0].is_allowed());
            if is_denied {
                denied += 1;
                keys_denied.insert(*key);
            }
        }
        Replayed {
            seconds: now.since(self.since).as_micros() / Span::SECOND.as_micros(),
            requests: self.requests.len() as u64,
            denied,
            denied_before: self.requests.iter().filter(|one| one.denied).count() as u64,
            keys: keys.len() as u64,
            keys_denied: keys_denied.len() as u64,
            exact: self.bar.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(limit: &str, burst: u64) -> Rule {
        Rule::new("try").key("{key}").limit(limit).burst(burst).build().expect("a rule")
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_767_225_600_000_000 + ms * 1_000)
    }

    #[test]
    fn other_numbers_are_tried_on_the_same_requests() {
        let mut journal = Journal::since(at(0));
        for turn in 0..100 {
            journal.add(at(turn * 1_000), 1, 1, turn % 2 == 1);
            journal.add(at(turn * 1_000), 2, 1, false);
        }
        let now = at(100_000);
        let same = journal.clone().replay(rule("60/min", 60), now);
        assert_eq!((same.requests, same.denied, same.denied_before, same.keys), (200, 0, 50, 2));
        assert_eq!((same.seconds, same.exact), (100, true));
        let half = journal.replay(rule("30/min", 1), now);
        assert_eq!((half.denied, half.keys_denied), (100, 2));
    }

    #[test]
    fn memory_is_bounded_by_keys_and_then_by_time() {
        let mut journal = Journal::since(at(0));
        // Multiplied, so that hashes are spread.
        let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for turn in 0..100_000u64 {
            journal.add(at(turn), hash(turn % 5_000), 1, false);
        }
        assert!(journal.requests.len() <= ROOM && journal.bar.is_some());
        let keys: HashSet<u64> = journal.requests.iter().map(|one| one.key).collect();
        assert!(keys.len() >= FEWEST_KEYS / 2, "{}", keys.len());
        // Of one busy key, the latest.
        let mut journal = Journal::since(at(0));
        (0..100_000).for_each(|turn| journal.add(at(turn), 7, 1, false));
        assert!(journal.requests.len() <= ROOM && journal.bar.is_none());
        let covered = journal.replay(rule("1/s", 1), at(100_000));
        assert!(covered.seconds < 17 && covered.seconds >= 12, "{covered:?}");
        // After the hours are over, nothing is left.
        let mut journal = Journal::since(at(0));
        journal.add(at(0), 7, 1, false);
        assert_eq!(journal.replay(rule("1/s", 1), at(7 * 3_600_000)).requests, 0);
    }
}
