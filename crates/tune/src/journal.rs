//! Every request of some of a rule's keys over the last hours, so that other numbers can be tried on them.
//!
//! The keys are a uniform sample by hash, like [`crate::sample`], so busy and quiet ones are in it alike. Memory is
//! bounded: with more requests, first fewer keys are kept, and then fewer hours.

use std::collections::VecDeque;

use tollkeeper::{Rule, Span, Timestamp};

use crate::hash::ByHash;
use crate::tried::{Asked, ByKey};

/// Requests that a running service keeps for each rule.
const ROOM: usize = 16_384;
/// With fewer keys than this, requests that are long ago are dropped rather than keys.
const FEWEST_KEYS: usize = 200;
/// How far back it goes.
const HOURS: Span = Span::from_secs(6 * 3_600);

/// The requests, oldest first.
#[derive(Clone, Debug)]
pub struct Journal {
    requests: VecDeque<Remembered>,
    /// Keys with this hash or above are left out.
    bar: Option<u64>,
    /// From when on nothing of the keys is missing.
    since: Timestamp,
    room: usize,
    /// How far back it goes; a log is kept whole.
    horizon: Option<Span>,
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
pub struct Replayed {
    /// The time covered, in seconds.
    pub seconds: u64,
    /// All of them.
    pub requests: u64,
    /// Those that it would have denied.
    pub denied: u64,
    /// Those that were denied in fact.
    pub denied_before: u64,
    /// Different keys.
    pub keys: u64,
    /// Those that it would have denied at least once.
    pub keys_denied: u64,
    /// Whether these are all requests of that time.
    pub exact: bool,
}

impl Journal {
    /// That of a running service, which begins now and goes back for hours.
    pub fn since(now: Timestamp) -> Journal {
        Journal { requests: VecDeque::new(), bar: None, since: now, room: ROOM, horizon: Some(HOURS) }
    }

    /// That of a log that begins here, with room for this many requests.
    pub fn of_log(began: Timestamp, room: usize) -> Journal {
        Journal { room, horizon: None, ..Journal::since(began) }
    }

    /// Adds a request, unless its key is left out.
    pub fn add(&mut self, at: Timestamp, key: u64, cost: u32, denied: bool) {
        if self.bar.is_some_and(|bar| key >= bar) {
            return;
        }
        if self.requests.len() >= self.room {
            self.make_room(at);
        }
        // Making room may have raised the bar above this key.
        if self.bar.is_none_or(|bar| key < bar) {
            self.requests.push_back(Remembered { at, key, cost, denied });
        }
    }

    fn make_room(&mut self, now: Timestamp) {
        self.forget_old(now);
        if self.requests.len() < self.room {
            return;
        }
        if self.has_many_keys() {
            // Hashes are spread evenly, so this leaves out half of the keys.
            let bar = self.bar.unwrap_or(u64::MAX) / 2;
            self.bar = Some(bar);
            self.requests.retain(|one| one.key < bar);
        }
        if self.requests.len() > self.room - self.room / 4 {
            self.requests.drain(..self.room / 4);
            self.since = self.requests.front().map_or(now, |one| one.at);
        }
    }

    fn has_many_keys(&self) -> bool {
        let mut keys: ByHash<()> = ByHash::default();
        self.requests.iter().any(|one| {
            keys.insert(one.key, ());
            keys.len() >= FEWEST_KEYS
        })
    }

    fn forget_old(&mut self, now: Timestamp) {
        let Some(horizon) = self.horizon else { return };
        let old = |one: &Remembered| now.since(one.at) > horizon;
        let count = self.requests.iter().take_while(|one| old(one)).count();
        self.requests.drain(..count);
        if now.since(self.since) > horizon {
            self.since = Timestamp::from_micros(now.as_micros() - horizon.as_micros());
        }
    }

    /// Runs the requests against a rule's numbers, with its own algorithm.
    pub fn replay(mut self, rule: &Rule, now: Timestamp) -> Replayed {
        self.forget_old(now);
        let tried = self.by_key().run(rule.quota());
        Replayed {
            seconds: now.since(self.since).as_micros() / Span::SECOND.as_micros(),
            requests: tried.requests,
            denied: tried.denied,
            denied_before: self.requests.iter().filter(|one| one.denied).count() as u64,
            keys: tried.keys,
            keys_denied: tried.keys_denied,
            exact: tried.exact,
        }
    }

    /// The requests by key, to try numbers on.
    pub fn by_key(&self) -> ByKey {
        let asked = |one: &Remembered| Asked { key: one.key, at: one.at, cost: one.cost };
        ByKey::new(self.requests.iter().map(asked).collect(), self.bar.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
        let same = journal.clone().replay(&rule("60/min", 60), now);
        assert_eq!((same.requests, same.denied, same.denied_before, same.keys), (200, 0, 50, 2));
        assert_eq!((same.seconds, same.exact), (100, true));
        let half = journal.replay(&rule("30/min", 1), now);
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
        let covered = journal.replay(&rule("1/s", 1), at(100_000));
        assert!(covered.seconds < 17 && covered.seconds >= 12, "{covered:?}");
        // After the hours are over, nothing is left.
        let mut journal = Journal::since(at(0));
        journal.add(at(0), 7, 1, false);
        assert_eq!(journal.replay(&rule("1/s", 1), at(7 * 3_600_000)).requests, 0);
    }
}
