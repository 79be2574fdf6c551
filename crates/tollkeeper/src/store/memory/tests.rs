//! The store's internals: runs, removal, eviction and the caps. Its answers are tested in `store_conformance`.

use std::collections::HashMap;

use proptest::prelude::*;
use tollkeeper_core::{Algorithm, Decision, Hold, Quota, Span, Timestamp};

use super::identity::{CLASSES, DISTANCE, Id};
use super::shard::Place;
use super::table::{Lookup, Newcomer, Table};
use crate::clock::{Clock, ManualClock};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

struct Subject {
    table: Table,
    hands: ManualClock,
    clock: Clock,
}

impl Subject {
    fn new(max_keys: usize, max_log_bytes: usize) -> Subject {
        let hands = ManualClock::at(START);
        Subject { table: Table::new(max_keys, max_log_bytes, 4), clock: hands.clone().into(), hands }
    }

    /// `None` when there is no room.
    fn charge(&self, id: Id, quota: &Quota) -> Option<Decision> {
        self.table.charge_slowly(place(id, quota), 1, Newcomer::Refused, &self.clock).ok()
    }

    /// A request of cost 1 by a key that shares a bucket when there is no room.
    fn share(&self, rule: &str, key: u32, quota: &Quota) -> Decision {
        let place = Place { id: self.table.id_of(&(rule, key)), rule, quota };
        self.table.charge(place, 1, &self.clock).expect("there is always room in a shared bucket")
    }

    fn charge_key(&self, key: u32, quota: &Quota) -> Option<Decision> {
        self.charge(self.table.id_of(&key), quota)
    }

    fn reset(&self, id: Id, quota: &Quota) -> bool {
        self.table.reset(id, quota, &self.clock)
    }

    fn release(&self, id: Id, quota: &Quota, hold: Hold) -> bool {
        self.table.release(place(id, quota), hold, &self.clock)
    }
}

fn place(id: Id, quota: &Quota) -> Place<'_> {
    Place { id, rule: "", quota }
}

fn per_second() -> Quota {
    Quota::per_second(1).build().expect("valid")
}

/// Entries are sorted by home slot within their run, and the counts are right.
fn assert_sound(table: &Table) {
    let mut keys = 0;
    for shard in table.each_shard() {
        let distances: Vec<u64> = shard.area.slots.iter().map(|slot| slot.tag() & DISTANCE).collect();
        for (at, distance) in distances.iter().enumerate() {
            let before = distances[at.checked_sub(1).unwrap_or(distances.len() - 1)];
            assert!(*distance <= before + 1, "slot {at} of {distances:?} is where nobody finds it");
        }
        let used = distances.iter().filter(|distance| **distance > 0).count();
        assert_eq!(used, shard.shard.used);
        keys += used;
    }
    assert_eq!(keys, table.len());
}

proptest! {
    /// Three homes, the first and the last slot among them, so that runs are long and wrap around.
    #[test]
    fn crowded_runs_keep_every_entry(steps in prop::collection::vec((0_u64..60, any::<bool>()), 1..400)) {
        let subject = Subject::new(40, 0);
        let quota = Quota::per_day(1_000).build().expect("valid");
        let mut used: HashMap<u64, u32> = HashMap::new();
        for (key, resets) in steps {
            let place = [0, 1 << 27, u64::from(u32::MAX)][key as usize % 3];
            let id = Id { tag: (key + 1) << 8 | 1, place };
            if resets {
                prop_assert_eq!(subject.reset(id, &quota), used.remove(&key).is_some());
            } else if let Some(decision) = subject.charge(id, &quota) {
                let used = used.entry(key).or_default();
                *used += 1;
                prop_assert_eq!(decision.remaining, 1_000 - *used);
            } else {
                prop_assert_eq!(subject.table.len(), 40);
            }
            assert_sound(&subject.table);
        }
    }

    #[test]
    fn dropping_leaves_the_table_sound(steps in prop::collection::vec((0_u32..300, 0_u64..40_000), 1..600)) {
        let subject = Subject::new(64, 0);
        for (key, micros) in steps {
            subject.hands.advance(Span::from_micros(micros));
            subject.charge_key(key, &per_second());
            prop_assert!(subject.table.len() <= 64);
            assert_sound(&subject.table);
        }
    }
}

/// A table that moves to a larger level keeps every kind of state, also that of keys which are not asked for meanwhile.
#[test]
fn growing_keeps_every_entry() {
    let subject = Subject::new(10_000, 10_000_000);
    let of = |algorithm| Quota::per(10, Span::from_secs(86_400)).algorithm(algorithm).build().expect("valid");
    let quotas = [
        Algorithm::TokenBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::SlidingWindowLog,
        Algorithm::Concurrency,
    ]
    .map(of);
    let quota = |key: u32| &quotas[key as usize % quotas.len()];
    let uses = |key: u32| key % 3 + 1;
    let mut levels = Vec::new();
    for key in 0..9_500 {
        for _ in 0..uses(key) {
            assert!(subject.charge_key(key, quota(key)).expect("room").is_allowed());
        }
        let level = subject.table.each_shard().map(|shard| shard.shard.level).max().expect("one shard at least");
        if levels.last() != Some(&level) {
            levels.push(level);
            assert_sound(&subject.table);
            (0..=key).for_each(|key| assert_left(&subject, key, quota(key), 10 - uses(key)));
        }
    }
    assert_eq!(levels, [0, 1, 2, 3, 4]);
    assert_eq!(subject.table.len(), 9_500);
    (0..9_500).for_each(|key| assert_left(&subject, key, quota(key), 10 - uses(key)));
}

fn assert_left(subject: &Subject, key: u32, quota: &Quota, left: u32) {
    let place = place(subject.table.id_of(&key), quota);
    assert_eq!(subject.table.peek(place, &subject.clock).remaining, left, "key {key}");
}

/// Readers without the lock look where most shards are. Whatever they find there must be what counts: an entry that was left behind
/// would admit a client once more.
#[test]
fn nobody_is_admitted_twice_while_the_table_grows() {
    const KEYS: u32 = if cfg!(miri) { 300 } else { 40_000 };
    let subject = Subject::new(2 * KEYS as usize, 0);
    let day = Quota::per_day(1).build().expect("valid");
    let charge = |key: u32| {
        let place = place(subject.table.id_of(&key), &day);
        subject.table.charge(place, 1, &subject.clock).expect("room").is_allowed()
    };
    let admitted = std::thread::scope(|threads| {
        let ask = || (0..KEYS).filter(|key| charge(*key)).count() + (0..KEYS).filter(|key| charge(*key)).count();
        let asking = [threads.spawn(ask), threads.spawn(ask), threads.spawn(ask)];
        asking.map(|asking| asking.join().expect("no panic")).into_iter().sum::<usize>()
    });
    assert_eq!(admitted, KEYS as usize);
    assert_sound(&subject.table);
}

/// A shard of a large table had a quarter of a million slots. Moving or examining all of them takes milliseconds, and a request waits for it.
#[test]
fn a_shard_of_a_large_table_stays_small() {
    for max_keys in [1_000_000, 12_000_000, 50_000_000] {
        let table = Table::new(max_keys, 0, 4);
        let shards = table.each_shard().count();
        let slots = table.memory_bytes() / shards / 25;
        assert!(slots <= 100_000, "{slots} slots in each of {shards} shards for {max_keys} keys");
    }
}

#[test]
fn nothing_is_dropped_while_there_is_plenty_of_room() {
    let subject = Subject::new(100, 0);
    for key in 0..70 {
        assert!(subject.charge_key(key, &per_second()).is_some());
    }
    subject.hands.advance(Span::from_secs(10));
    assert!(subject.charge_key(70, &per_second()).is_some());
    assert_eq!(subject.table.len(), 71);
    subject.hands.set(START);
    assert!(!subject.charge_key(0, &per_second()).expect("known").is_allowed(), "the clock ran back");
}

#[test]
fn a_full_table_refuses_until_something_expires() {
    let subject = Subject::new(100, 0);
    for key in 0..100 {
        assert!(subject.charge_key(key, &per_second()).is_some());
    }
    for key in 100..400 {
        assert_eq!(subject.charge_key(key, &per_second()), None);
    }
    assert!(subject.charge_key(7, &per_second()).is_some_and(|decision| !decision.is_allowed()));
    subject.hands.advance(Span::SECOND - Span::from_micros(1));
    assert_eq!(subject.charge_key(100, &per_second()), None);
    subject.hands.advance(Span::from_micros(1));
    for key in 100..200 {
        assert!(subject.charge_key(key, &per_second()).is_some());
    }
    assert_sound(&subject.table);
}

#[test]
fn one_key_that_expires_makes_room_for_one() {
    let subject = Subject::new(100, 0);
    let brief = Quota::per(1, Span::from_micros(1_000)).build().expect("valid");
    subject.charge_key(0, &brief);
    for key in 1..100 {
        assert!(subject.charge_key(key, &per_second()).is_some());
    }
    subject.hands.advance(Span::from_micros(1_000));
    assert!(subject.charge_key(100, &per_second()).is_some());
    assert_eq!(subject.charge_key(101, &per_second()), None);
}

/// An attacker keeps an entry that always seems about to expire, and floods: a refusal must not examine the whole
/// shard.
#[test]
fn fruitless_sweeps_are_paid_for_before_the_next() {
    let subject = Subject::new(10_000, 0);
    let (brief, hour) =
        (Quota::per_second(1_000_000).build().expect("valid"), Quota::per_hour(1).build().expect("valid"));
    subject.charge_key(0, &brief);
    for key in 1..10_000 {
        assert!(subject.charge_key(key, &hour).is_some());
    }
    let mut sweeps = 0;
    for newcomer in 10_000..11_000 {
        let before = subject.table.each_shard().map(|shard| shard.shard.debt).sum::<usize>();
        assert_eq!(subject.charge_key(newcomer, &hour), None);
        let after = subject.table.each_shard().map(|shard| shard.shard.debt).sum::<usize>();
        sweeps += usize::from(after > before);
        subject.hands.advance(Span::from_micros(1));
        assert!(subject.charge_key(0, &brief).is_some());
    }
    assert!((1..=5).contains(&sweeps), "{sweeps} sweeps for a thousand refusals");
}

#[test]
fn many_shards_hold_as_many_keys_as_promised() {
    let subject = Subject::new(100_000, 0);
    let hour = Quota::per_hour(1).build().expect("valid");
    for key in 0..100_000 {
        assert!(subject.charge_key(key, &hour).is_some(), "key {key}");
    }
    assert_eq!(subject.charge_key(100_000, &hour), None);
    assert_eq!(subject.table.len(), 100_000);
    assert!(subject.table.memory_bytes() <= 40 * 100_000);
    assert_sound(&subject.table);
}

#[test]
fn logs_stay_within_their_bytes_and_return_them() {
    let subject = Subject::new(1_000, 100_000);
    let log = Quota::per(1_000, Span::SECOND).algorithm(Algorithm::SlidingWindowLog).build().expect("valid");
    let empty = subject.table.memory_bytes();
    let mut refused = 0;
    for step in 0..20_000_u32 {
        subject.hands.advance(Span::from_micros(1));
        refused += u32::from(subject.charge_key(step % 1_000, &log).is_none());
        assert!(subject.table.memory_bytes() <= empty + 100_000);
    }
    assert!(refused > 0, "a thousand logs do not fit");

    // All logs are idle by now, and make room for one that grows.
    subject.hands.advance(Span::from_secs(2));
    for _ in 0..1_000 {
        subject.hands.advance(Span::from_micros(1));
        assert!(subject.charge_key(1_000, &log).is_some());
    }
    assert_eq!(subject.table.len(), 1);
    assert!(subject.reset(subject.table.id_of(&1_000_u32), &log));
    assert_eq!(subject.table.memory_bytes(), empty);
}

/// 290,000 keys used up the memory for logs, and an existing client passed 30 more requests: its log could not grow,
/// and the rule let it pass.
#[test]
fn a_log_that_may_not_grow_still_counts() {
    let subject = Subject::new(100_000, 100_000);
    let log = Quota::per_hour(40).algorithm(Algorithm::SlidingWindowLog).build().expect("valid");
    let ask = |key| subject.charge_key(key, &log);
    let mut passed = (0..10).filter(|_| ask(0).is_some_and(|decision| decision.is_allowed())).count();
    let kept = (1..10_000).filter(|key| ask(*key).is_some()).count();
    assert!(kept < 1_000, "the room for logs is taken: {kept} are kept");
    for step in 1..3_600 {
        subject.hands.advance(Span::SECOND);
        let decision = ask(0).expect("a bucket that is kept can always be written");
        passed += usize::from(decision.is_allowed());
        assert_eq!(decision.remaining as usize, 40 - passed, "second {step}");
    }
    assert_eq!(passed, 40);
}

#[test]
fn every_slot_has_room_from_the_first_on() {
    let subject = Subject::new(100_000, 100_000);
    let jobs = Quota::concurrent(100, Span::from_secs(60)).build().expect("valid");
    let kept: Vec<u32> = (0..1_000).filter(|key| subject.charge_key(*key, &jobs).is_some()).collect();
    assert!((30..60).contains(&kept.len()), "of 100 slots each: {}", kept.len());
    for key in &kept {
        let taken = (0..200).filter(|_| subject.charge_key(*key, &jobs).expect("room").is_allowed()).count();
        assert_eq!(taken, 99, "key {key}");
    }
}

#[test]
fn the_last_slot_released_frees_the_log() {
    let subject = Subject::new(10, 100_000);
    let jobs = Quota::concurrent(5, Span::from_secs(60)).build().expect("valid");
    let empty = subject.table.memory_bytes();
    let id = subject.table.id_of("a");
    let holds: Vec<Hold> = (0..5).filter_map(|_| subject.charge(id, &jobs)?.hold).collect();
    assert!(subject.table.memory_bytes() > empty);
    assert!(holds.iter().all(|hold| subject.release(id, &jobs, *hold)));
    assert_eq!((subject.table.len(), subject.table.memory_bytes()), (0, empty));
}

#[test]
fn a_rule_that_stops_keeping_a_log_frees_it() {
    let subject = Subject::new(10, 100_000);
    let log = Quota::per_minute(5).algorithm(Algorithm::SlidingWindowLog).build().expect("valid");
    let empty = subject.table.memory_bytes();
    let id = subject.table.id_of("a");
    subject.charge(id, &log);
    assert!(subject.charge(id, &per_second()).is_some_and(|decision| decision.is_allowed()));
    assert_eq!((subject.table.len(), subject.table.memory_bytes()), (1, empty));
}

/// A thread that read the clock and then lost the race for the lock must not go back in time.
#[test]
fn time_order_is_lock_order() {
    let subject = Subject::new(10, 0);
    let quota = Quota::per_second(1).burst(10).build().expect("valid");
    let id = subject.table.id_of("a");
    subject.charge(id, &quota);
    subject.hands.advance(Span::from_secs(5));
    subject.charge(id, &quota);
    let late = subject.table.charge_known_bucket(id, &quota, 1, START, Lookup::Single);
    assert!(late.is_none(), "the clock has to be read again");
    let late = subject.charge(id, &quota).expect("room");
    assert_eq!(late.remaining, 8, "as of the second charge, when the bucket was full again");
}

/// In a full table, where entries are far from home and runs go over the end of a shard: one of many is found where one by itself is, and is never
/// taken for another.
#[test]
fn one_of_many_is_found_as_one_by_itself() {
    let (quota, keys) = (Quota::per_hour(10).build().expect("valid"), 700);
    for most in [8, 100, keys] {
        let subject = Subject::new(most, 0);
        let ids: Vec<Id> = (0..keys as u32).map(|key| subject.table.id_of(&key)).collect();
        let kept = ids.iter().map(|id| subject.charge(*id, &quota).is_some()).collect::<Vec<_>>();
        assert_eq!(kept.iter().filter(|kept| **kept).count(), most.min(keys));
        for (left, lookup) in [(8, Lookup::OfMany), (7, Lookup::Single), (6, Lookup::OfMany)] {
            for (id, kept) in ids.iter().zip(&kept) {
                // Few entries are too far from home for a look without the lock.
                let found = subject.table.charge_known_bucket(*id, &quota, 1, START, lookup);
                let found = found.or_else(|| kept.then(|| subject.charge(*id, &quota)).flatten());
                assert_eq!(found.map(|decision| decision.remaining), kept.then_some(left), "{most} {lookup:?}");
            }
        }
    }
}

/// A million new keys in 13 seconds filled the store, and a new client of a rule with 5 a day then passed 12 of 12
/// times.
#[test]
fn a_flood_of_newcomers_limits_itself() {
    let subject = Subject::new(100, 0);
    let day = Quota::per_day(5).algorithm(Algorithm::FixedWindow).build().expect("valid");
    let mut passed = 0;
    for key in 0..20_000 {
        passed += u32::from(subject.share("", key, &day).is_allowed());
    }
    assert_eq!(passed, 100 + 5 * u32::from(CLASSES));
    assert_eq!(subject.table.overflowed().keys, 20_000 - 100);
    assert!((0..12).all(|_| !subject.share("", 30_000, &day).is_allowed()));
    assert_eq!((0..12).filter(|_| subject.share("", 7, &day).is_allowed()).count(), 4, "who is counted has its own");
    subject.hands.advance(Span::from_secs(24 * 60 * 60));
    assert_eq!((0..12).filter(|_| subject.share("", 30_000, &day).is_allowed()).count(), 5);
}

#[test]
fn a_flood_on_one_rule_leaves_room_for_the_others() {
    let subject = Subject::new(9_000, 90_000);
    subject.table.expect_rules(["flooded", "login"]);
    let day = Quota::per_day(1).build().expect("valid");
    let log = Quota::per_day(1).algorithm(Algorithm::SlidingWindowLog).build().expect("valid");
    for key in 0..20_000 {
        subject.share("flooded", key, &day);
        subject.share("flooded", 100_000 + key, &log);
    }
    let flood = subject.table.overflowed();
    assert!((8_000..=8_001).contains(&subject.table.len()), "eight ninths: {}", subject.table.len());
    for key in 0..500 {
        assert!(subject.share("login", key, &day).is_allowed(), "key {key}");
    }
    for key in 500..530 {
        assert!(subject.share("login", key, &log).is_allowed(), "key {key}");
    }
    assert_eq!(subject.table.overflowed(), flood, "each has a bucket of its own");
    assert_sound(&subject.table);
}

/// A slot is released in the bucket in which it was taken.
#[test]
fn a_shared_slot_is_released() {
    let subject = Subject::new(1, 100_000);
    let jobs = Quota::concurrent(2, Span::from_secs(60)).build().expect("valid");
    subject.share("", 0, &jobs);
    let hold = subject.share("", 1, &jobs).hold.expect("a slot");
    assert!(subject.share("", 1, &jobs).is_allowed());
    assert!(!subject.share("", 1, &jobs).is_allowed());
    let id = subject.table.id_of(&("", 1_u32));
    assert!(subject.release(id, &jobs, hold) && !subject.release(id, &jobs, hold));
    assert!(subject.share("", 1, &jobs).is_allowed());
}

#[test]
fn a_newcomer_without_room_is_shown_what_it_shares() {
    let subject = Subject::new(1, 0);
    let hour = Quota::per_hour(3).build().expect("valid");
    subject.share("", 0, &hour);
    assert_eq!(subject.share("", 1, &hour).remaining, 2);
    let shown = subject.table.peek(place(subject.table.id_of(&("", 1_u32)), &hour), &subject.clock);
    assert_eq!((shown.remaining, shown.is_allowed()), (2, true));
}

#[test]
fn more_keys_than_memory_is_an_error() {
    for max_keys in [usize::MAX, usize::MAX / 2, usize::MAX / 64, 1 << 50] {
        assert!(Table::try_new(max_keys, 0, 1).is_err(), "{max_keys}");
    }
}

proptest! {
    /// An existing client passes at most its quota in any window, whatever else comes; and all new ones together pass
    /// at most what their shared buckets allow.
    #[test]
    fn no_flood_gets_more_than_the_shared_buckets(
        algorithm in prop::sample::select(vec![Algorithm::FixedWindow, Algorithm::SlidingWindowLog]),
        limit in 1_u32..30,
        steps in prop::collection::vec((0_u32..600, 0_u64..3_000_000, any::<bool>()), 1..1_500),
    ) {
        let subject = Subject::new(20, 8_000);
        let quota = Quota::per_minute(limit).algorithm(algorithm).build().expect("valid");
        // The clock starts with a window and stays in it, so that the window's quota is the limit.
        subject.hands.set(Timestamp::from_micros(START.as_micros() / 60_000_000 * 60_000_000));
        let end = subject.hands.now() + Span::from_secs(60);
        let mut passed: HashMap<u32, u32> = HashMap::new();
        let known: Vec<u32> = (0..5).collect();
        for key in &known {
            *passed.entry(*key).or_default() += u32::from(subject.share("", *key, &quota).is_allowed());
        }
        for (key, micros, is_known) in steps {
            if subject.hands.now() + Span::from_micros(micros) < end {
                subject.hands.advance(Span::from_micros(micros));
            }
            let key = if is_known { key % 5 } else { key };
            *passed.entry(key).or_default() += u32::from(subject.share("", key, &quota).is_allowed());
        }
        for key in &known {
            prop_assert!(passed[key] <= limit, "{} of {limit}", passed[key]);
        }
        let total: u32 = passed.values().sum();
        prop_assert!(total <= limit * (20 + u32::from(CLASSES)), "{total}");
        prop_assert!(subject.table.len() <= 20);
        assert_sound(&subject.table);
    }
}
