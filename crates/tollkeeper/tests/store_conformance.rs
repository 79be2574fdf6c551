//! What every store must do, whatever its implementation. A new store joins in `every_store.rs`.
//!
//! The reference is a map of states and the pure function that decides: no shards, no packing, no expiry.

mod changes;
mod exceptions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use proptest::prelude::*;
use tollkeeper::{
    Algorithm, Charge, Decision, Enforcement, Hold, Key, ManualClock, MemoryStore, Quota, Rule, RuleSpec, Span, Store,
    StoreError, Timestamp,
};
use tollkeeper_core::{Change, Scalar, State, decide};

use super::every_store::{NewStore, STORES, Turn, now_or_never, turn};

const NOON: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A store without async, for the tests.
struct Subject {
    store: Store,
    clock: ManualClock,
    _turn: Option<Turn>,
}

impl Subject {
    fn new((name, new): &(&str, NewStore)) -> Subject {
        let (turn, clock) = (turn(name), ManualClock::at(NOON));
        Subject { store: new(clock.clone()), clock, _turn: turn }
    }

    fn charge(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        let decided = now_or_never(self.store.charge(charges))?;
        Ok(decided.into_iter().map(|(decision, _)| decision).collect())
    }

    fn charge_one(&self, rule: &Limited, value: &str, cost: u32) -> Decision {
        self.charge(&[charge(rule, value, cost)]).unwrap()[0]
    }

    fn inspect(&self, rule: &Limited, value: &str) -> Decision {
        now_or_never(self.store.inspect(charge(rule, value, 0).bucket())).unwrap()
    }

    fn reset(&self, rule: &Limited, value: &str) -> bool {
        now_or_never(self.store.reset(charge(rule, value, 0).bucket())).unwrap()
    }

    fn refund(&self, rule: &Limited, value: &str, cost: u32) -> bool {
        now_or_never(self.store.refund(charge(rule, value, 0).bucket(), cost)).unwrap()
    }

    fn renew(&self, rule: &Limited, value: &str, hold: Hold) -> Option<Hold> {
        now_or_never(self.store.renew(charge(rule, value, 0).bucket(), hold)).unwrap()
    }

    fn release(&self, rule: &Limited, value: &str, hold: Hold) -> bool {
        now_or_never(self.store.release(charge(rule, value, 0).bucket(), hold)).unwrap()
    }
}

fn key(value: &str) -> Key {
    Key { variant: 0, value: value.into() }
}

fn charge(rule: &Limited, value: &str, cost: u32) -> Charge {
    let charge = Charge::new(rule.rule.clone(), key(value), cost);
    if rule.quota == *rule.rule.quota() { charge } else { charge.with_quota(rule.quota) }
}

/// A rule, and the quota for its charges.
#[derive(Clone, Debug)]
struct Limited {
    rule: Arc<Rule>,
    quota: Quota,
}

impl Limited {
    /// The same rule under another quota.
    fn by(&self, quota: Quota) -> Limited {
        Limited { rule: self.rule.clone(), quota }
    }
}

fn rule(name: &str, limit: &str, algorithm: Algorithm) -> Limited {
    rule_with(name, limit, |spec| spec.algorithm = algorithm)
}

fn rule_with(name: &str, limit: &str, change: impl FnOnce(&mut RuleSpec)) -> Limited {
    let mut spec = RuleSpec { name: name.into(), key: "{user_id}".into(), limit: limit.into(), ..RuleSpec::default() };
    change(&mut spec);
    if spec.algorithm == Algorithm::Concurrency {
        let (count, hold) = limit.split_once('/').unwrap();
        spec.limit = Scalar::Number(count.parse().unwrap());
        spec.hold = Some(hold.into());
    }
    let rule = Arc::new(spec.build().unwrap());
    Limited { quota: *rule.quota(), rule }
}

/// Runs a test with every store.
fn for_each_store(test: impl Fn(Subject)) {
    for store in STORES {
        println!("store: {}", store.0);
        test(Subject::new(store));
    }
}

#[test]
fn every_algorithm_admits_its_limit_and_recovers() {
    for_each_store(|subject| {
        for algorithm in Algorithm::ALL {
            let rule = rule(algorithm.name(), "3/60s", algorithm);
            for remaining in [2, 1, 0] {
                let decision = subject.charge_one(&rule, "a", 1);
                assert!(decision.is_allowed(), "{algorithm}");
                assert_eq!(decision.remaining, remaining, "{algorithm}");
            }
            let denied = subject.charge_one(&rule, "a", 1);
            let wait = denied.retry_after().unwrap();
            assert!(!denied.is_allowed() && wait > Span::ZERO, "{algorithm}");
            assert!(subject.charge_one(&rule, "b", 1).is_allowed(), "{algorithm}: another key is another bucket");

            subject.clock.advance(wait - Span::from_micros(1));
            assert!(!subject.charge_one(&rule, "a", 1).is_allowed(), "{algorithm}: a microsecond early");
            subject.clock.advance(Span::from_micros(1));
            assert!(subject.charge_one(&rule, "a", 1).is_allowed(), "{algorithm}: on time");
        }
    });
}

/// The vectors of an independent model, one key for each case.
#[test]
fn decisions_are_those_of_the_independent_model() {
    /// at, cost, allowed, retry_after (null: never), remaining, reset_after, delay
    type Step = (u64, u32, bool, Option<u64>, u32, u64, u64);
    let file: serde_json::Value =
        serde_json::from_str(include_str!("../../core/tests/vectors/decisions.json")).unwrap();
    for_each_store(|subject| {
        for case in file["cases"].as_array().unwrap() {
            let (name, quota) = (case["name"].as_str().unwrap(), &case["quota"]);
            let number = |field: &str| quota[field].as_u64().unwrap();
            let algorithm: Algorithm = serde_json::from_value(quota["algorithm"].clone()).unwrap();
            let built = match quota["calendar"].as_object() {
                Some(calendar) => {
                    let (unit, zone) = (calendar["unit"].as_str().unwrap(), calendar["timezone"].as_str().unwrap());
                    let day = &calendar["anchor_day"];
                    format!("{}/{unit} algorithm {algorithm} timezone {zone} anchor_day {day}", number("count")).parse()
                }
                None => {
                    let quota = Quota::per(number("count") as u32, Span::from_micros(number("period_us")));
                    quota.burst(number("burst") as u32).algorithm(algorithm).build()
                }
            };
            let rule = rule("vector", "1/s", Algorithm::TokenBucket).by(built.unwrap());
            let steps: Vec<Step> = serde_json::from_value(case["steps"].clone()).unwrap();
            for (index, expected) in steps.into_iter().enumerate() {
                subject.clock.set(Timestamp::from_micros(expected.0));
                let decision = subject.charge_one(&rule, name, expected.1);
                let got: Step = (
                    expected.0,
                    expected.1,
                    decision.is_allowed(),
                    decision.retry_after().map(Span::as_micros),
                    decision.remaining,
                    decision.reset_after.as_micros(),
                    decision.delay().as_micros(),
                );
                assert_eq!(got, expected, "{name} step {index}");
            }
        }
    });
}

#[test]
fn one_enforced_denial_charges_nobody() {
    for_each_store(|subject| {
        let wide = rule("wide", "10/h", Algorithm::TokenBucket);
        let log = rule("log", "10/h", Algorithm::SlidingWindowLog);
        let narrow = rule("narrow", "1/h", Algorithm::FixedWindow);
        let all = [charge(&wide, "a", 1), charge(&log, "a", 1), charge(&narrow, "a", 1)];
        assert!(subject.charge(&all).unwrap().iter().all(Decision::is_allowed));
        for _ in 0..3 {
            let decisions = subject.charge(&all).unwrap();
            assert_eq!(decisions.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [true, true, false]);
            assert_eq!(decisions.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [9, 9, 0]);
        }
        assert_eq!(subject.inspect(&wide, "a").remaining, 9);
        assert_eq!(subject.inspect(&log, "a").remaining, 9);
    });
}

#[test]
fn a_shadow_denial_stops_nothing() {
    for_each_store(|subject| {
        let wide = rule("wide", "10/h", Algorithm::TokenBucket);
        let shadow = rule_with("shadow", "1/h", |spec| spec.mode = Enforcement::Shadow);
        let all = [charge(&wide, "a", 1), charge(&shadow, "a", 1)];
        subject.charge(&all).unwrap();
        let decisions = subject.charge(&all).unwrap();
        assert!(decisions[0].is_allowed() && !decisions[1].is_allowed());
        assert_eq!(subject.inspect(&wide, "a").remaining, 8, "charged although the shadow rule says no");
        assert_eq!(subject.inspect(&shadow, "a").remaining, 0);
    });
}

#[test]
fn denials_and_peeks_leave_no_trace() {
    for_each_store(|subject| {
        for algorithm in Algorithm::ALL {
            let rule = rule(algorithm.name(), "2/60s", algorithm);
            assert!(subject.charge_one(&rule, "a", 0).is_allowed());
            assert!(!subject.charge_one(&rule, "a", 3).is_allowed(), "more than the limit never passes");
            assert_eq!(subject.inspect(&rule, "a").reset_after, Span::ZERO, "{algorithm}: as if never used");
            assert!(!subject.reset(&rule, "a"), "{algorithm}: nothing was kept");

            subject.charge_one(&rule, "a", 2);
            let before = subject.inspect(&rule, "a");
            for cost in [0, 1, 2, 3] {
                subject.charge_one(&rule, "a", cost);
            }
            assert_eq!(subject.inspect(&rule, "a"), before, "{algorithm}");
        }
    });
}

#[test]
fn a_reset_bucket_is_new() {
    for_each_store(|subject| {
        for algorithm in Algorithm::ALL {
            let rule = rule(algorithm.name(), "2/60s", algorithm);
            subject.charge_one(&rule, "a", 2);
            subject.charge_one(&rule, "b", 2);
            assert!(subject.reset(&rule, "a"));
            assert!(!subject.reset(&rule, "a"), "{algorithm}: already forgotten");
            assert_eq!(subject.inspect(&rule, "a").remaining, 2, "{algorithm}");
            assert_eq!(subject.inspect(&rule, "b").remaining, 0, "{algorithm}: the other key is untouched");
            subject.clock.advance(Span::from_secs(120));
            assert!(!subject.reset(&rule, "b"), "{algorithm}: idle is as good as forgotten");
        }
    });
}

#[test]
fn a_slot_is_released_once() {
    for_each_store(|subject| {
        let rule = rule("jobs", "2/60s", Algorithm::Concurrency);
        let first = subject.charge_one(&rule, "a", 1).hold.unwrap();
        let second = subject.charge_one(&rule, "a", 1).hold.unwrap();
        assert!(!subject.charge_one(&rule, "a", 1).is_allowed());
        assert!(subject.release(&rule, "a", first));
        assert!(!subject.release(&rule, "a", first), "given back before");
        assert!(!subject.release(&rule, "b", second), "another key's");
        let third = subject.charge_one(&rule, "a", 1).hold.unwrap();
        assert!(!subject.charge_one(&rule, "a", 1).is_allowed());

        subject.clock.advance(Span::from_secs(60));
        assert!(!subject.release(&rule, "a", second), "expired");
        assert!(!subject.release(&rule, "a", third), "expired");
        assert_eq!(subject.inspect(&rule, "a").remaining, 2);
    });
}

#[test]
fn a_renewed_slot_is_held_for_another_period_and_lets_nobody_in() {
    for_each_store(|subject| {
        let rule = rule("jobs", "2/60s", Algorithm::Concurrency);
        let [first, second] = [1, 1].map(|cost| subject.charge_one(&rule, "a", cost).hold.unwrap());
        assert_eq!(subject.renew(&rule, "a", first), Some(first), "nothing to renew yet");
        subject.clock.advance(Span::from_secs(40));
        let renewed = subject.renew(&rule, "a", first).unwrap();
        assert!(!subject.charge_one(&rule, "a", 1).is_allowed());
        assert_eq!(subject.renew(&rule, "a", first), None, "it goes by another name now");
        assert!(!subject.release(&rule, "a", first));

        subject.clock.advance(Span::from_secs(20));
        assert_eq!(subject.renew(&rule, "a", second), None, "expired");
        assert_eq!(subject.inspect(&rule, "a").remaining, 1, "the other one ended, the renewed one did not");
        let third = subject.charge_one(&rule, "a", 1).hold.unwrap();
        assert_eq!(subject.renew(&rule, "b", third), None, "another key's");
        subject.clock.advance(Span::from_micros(39_999_999));
        let renewed = subject.renew(&rule, "a", renewed).unwrap();
        assert_eq!(subject.inspect(&rule, "a").remaining, 0);
        assert!(subject.release(&rule, "a", renewed));
        assert!(subject.release(&rule, "a", third));
        assert_eq!(subject.renew(&rule, "a", third), None, "given back before");
        assert_eq!(subject.inspect(&rule, "a").remaining, 2);
    });
}

#[test]
fn an_amount_is_refunded_and_never_beyond_the_limit() {
    for_each_store(|store| {
        for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::Concurrency) {
            let rule = rule(algorithm.name(), "10/h", algorithm);
            for cost in [5, 3] {
                assert!(store.charge_one(&rule, "a", cost).is_allowed());
            }
            assert!(store.refund(&rule, "a", 5), "{algorithm}");
            assert_eq!(store.inspect(&rule, "a").remaining, 7, "{algorithm}");
            assert!(store.refund(&rule, "a", 500), "{algorithm}");
            assert_eq!(store.inspect(&rule, "a").remaining, 10, "{algorithm}");
            assert!(!store.refund(&rule, "a", 1) && !store.refund(&rule, "new", 1), "{algorithm}");
            assert!(
                !store.reset(&rule, "a"),
                "{algorithm}: a bucket that was given everything back is as if never used"
            );
        }
        // A slot is released by its hold, because a request may still use it.
        let slots = rule("slots", "3/min", Algorithm::Concurrency);
        assert!(store.charge_one(&slots, "a", 2).is_allowed());
        assert!(!store.refund(&slots, "a", 2));
        assert_eq!(store.inspect(&slots, "a").remaining, 1);
    });
}

#[test]
fn rules_and_variants_have_buckets_of_their_own() {
    for_each_store(|subject| {
        let (one, other) = (rule("one", "1/h", Algorithm::TokenBucket), rule("other", "1/h", Algorithm::TokenBucket));
        assert!(subject.charge_one(&one, "a", 1).is_allowed());
        assert!(subject.charge_one(&other, "a", 1).is_allowed());
        let mut variant = charge(&one, "a", 1);
        variant.key.variant = 1;
        assert!(subject.charge(&[variant]).unwrap()[0].is_allowed());
        assert!(!subject.charge_one(&one, "a", 1).is_allowed());
    });
}

#[test]
fn two_threads_on_one_key_admit_exactly_the_burst() {
    for_each_store(|subject| {
        // Enough to collide: threads overlap for nanoseconds in memory, and all the time over a socket.
        let rounds = if matches!(subject.store, Store::Memory(_)) { 20_000 } else { 500 };
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindowLog] {
            let rule = rule(algorithm.name(), &format!("{}/h", rounds / 2), algorithm);
            let admitted = AtomicU32::new(0);
            thread::scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        let charges = [charge(&rule, "hot", 1)];
                        let passed = now_or_never(async {
                            let mut passed = 0;
                            for _ in 0..rounds {
                                passed += u32::from(subject.store.charge(&charges).await.unwrap()[0].0.is_allowed());
                            }
                            passed
                        });
                        admitted.fetch_add(passed, Relaxed);
                    });
                }
            });
            assert_eq!(admitted.into_inner(), rounds / 2, "{algorithm}");
        }
    });
}

#[test]
fn threads_with_overlapping_rules_neither_deadlock_nor_admit_too_much() {
    const THREADS: usize = 8;
    for_each_store(|subject| {
        let rounds = if matches!(subject.store, Store::Memory(_)) { 3_000 } else { 150 };
        let rules: Vec<Limited> =
            (0..4).map(|nth| rule(&format!("rule-{nth}"), &format!("{}/h", rounds / 2), Algorithm::ALL[nth])).collect();
        let keys = ["a", "b", "c"];
        let admitted: Vec<[AtomicU32; 3]> = rules.iter().map(|_| Default::default()).collect();
        thread::scope(|threads| {
            for thread in 0..THREADS {
                let (subject, rules, admitted) = (&subject, &rules, &admitted);
                threads.spawn(move || {
                    now_or_never(async {
                        for round in 0..rounds {
                            // Every thread lists its charges in another order.
                            let chosen: Vec<(usize, usize)> = (0..rules.len())
                                .map(|nth| (nth + thread) % rules.len())
                                .filter(|rule| !(round + rule).is_multiple_of(3))
                                .map(|rule| (rule, (round / 3 + thread + rule) % keys.len()))
                                .collect();
                            let charges: Vec<Charge> =
                                chosen.iter().map(|(rule, key)| charge(&rules[*rule], keys[*key], 1)).collect();
                            let decisions = subject.store.charge(&charges).await.unwrap();
                            if decisions.iter().all(|(decision, _)| decision.is_allowed()) {
                                for (rule, key) in chosen {
                                    admitted[rule][key].fetch_add(1, Relaxed);
                                }
                            }
                        }
                    });
                });
            }
        });
        for (rule, admitted) in rules.iter().zip(admitted) {
            for (key, admitted) in keys.into_iter().zip(admitted) {
                let (admitted, left) = (admitted.into_inner(), subject.inspect(rule, key).remaining);
                assert_eq!(admitted + left, rounds as u32 / 2, "{} of {key}", rule.rule.name());
            }
        }
    });
}

#[test]
fn a_bucket_named_twice_in_one_request_does_no_harm() {
    for_each_store(|subject| {
        for algorithm in Algorithm::ALL {
            let rule = rule(algorithm.name(), "10/h", algorithm);
            let decisions = subject.charge(&[charge(&rule, "a", 1), charge(&rule, "a", 1)]).unwrap();
            assert!(decisions.iter().all(Decision::is_allowed));
            assert!(subject.inspect(&rule, "a").remaining <= 9);
            assert!(subject.reset(&rule, "a"));
            assert_eq!(subject.inspect(&rule, "a").remaining, 10);
        }
    });
}

/// A step of a generated history.
#[derive(Clone, Debug)]
enum Step {
    /// Rules by position, each with its key and cost.
    Charge(Vec<(usize, u8, u32)>),
    Inspect(usize, u8),
    Reset(usize, u8),
    /// Releases one of the slots taken so far, or one released already.
    Release(usize),
    Renew(usize),
    /// Moves the clock back or forth, in microseconds.
    Move(i64),
    /// Another quota under the same name.
    Replace(usize, Box<Limited>),
}

/// The reference: states in a map.
#[derive(Default)]
struct Model(BTreeMap<(Arc<str>, String), State>);

impl Model {
    fn state(&mut self, rule: &str, value: &str) -> &mut State {
        self.0.entry((rule.into(), value.into())).or_default()
    }

    fn charge(&mut self, charges: &[Charge], now: Timestamp) -> Vec<Decision> {
        let mut decided: Vec<(Decision, Change)> = Vec::new();
        for charge in charges {
            decided.push(decide(charge.quota(), charge.cost, self.state(charge.rule.name(), &charge.key.value), now));
        }
        let denied = charges
            .iter()
            .zip(&decided)
            .any(|(charge, (decision, _))| charge.rule.is_enforced() && !decision.is_allowed());
        let mut answers = Vec::new();
        for (charge, (decision, change)) in charges.iter().zip(decided) {
            let state = self.state(charge.rule.name(), &charge.key.value);
            if denied && decision.is_allowed() {
                let (untouched, _) = decide(charge.quota(), 0, state, now);
                answers.push(Decision { outcome: decision.outcome, ..untouched });
            } else {
                state.apply(change);
                answers.push(decision);
            }
        }
        answers
    }
}

fn any_rule(nth: usize) -> impl Strategy<Value = Limited> {
    let numbers = (1_u32..12, prop::sample::select(vec!["1ms", "7ms", "1s", "60s", "1h"]), 1_u32..20);
    let calendar = prop::option::weighted(0.3, prop::sample::select(vec!["day", "week", "month"]));
    (prop::sample::select(Algorithm::ALL.to_vec()), numbers, any::<bool>(), calendar).prop_map(
        move |(algorithm, (count, period, burst), shadow, calendar)| {
            let calendar = calendar.filter(|_| algorithm == Algorithm::FixedWindow);
            let period = calendar.unwrap_or(period);
            rule_with(&format!("rule-{nth}"), &format!("{count}/{period}"), |spec| {
                spec.algorithm = algorithm;
                spec.timezone = calendar.map(|_| "Europe/Berlin".into());
                spec.burst = algorithm.has_burst().then_some(Scalar::Number(burst.into()));
                spec.mode = if shadow { Enforcement::Shadow } else { Enforcement::Enforce };
            })
        },
    )
}

fn any_move() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0..2_000_i64,
        3 => 0..2_000_000_i64,
        1 => 0..8_000_000_000_i64,
        1 => 0..3_000_000_000_000_i64,
        1 => -2_000..0_i64,
        1 => -8_000_000_000..0_i64,
        1 => -3_000_000_000_000..0_i64,
    ]
}

const RULES: usize = 3;
const KEYS: u8 = 3;

fn any_step() -> impl Strategy<Value = Step> {
    let bucket = || (0..RULES, 0..KEYS);
    let charges = prop::collection::btree_map(0..RULES, (0..KEYS, 0_u32..6), 1..=RULES);
    prop_oneof![
        10 => charges.prop_map(|all| Step::Charge(all.into_iter().map(|(rule, (key, cost))| (rule, key, cost)).collect())),
        6 => any_move().prop_map(Step::Move),
        2 => bucket().prop_map(|(rule, key)| Step::Inspect(rule, key)),
        1 => bucket().prop_map(|(rule, key)| Step::Reset(rule, key)),
        2 => (0_usize..100).prop_map(Step::Release),
        3 => (0_usize..100).prop_map(Step::Renew),
        1 => (0..RULES).prop_flat_map(|nth| any_rule(nth).prop_map(move |rule| Step::Replace(nth, Box::new(rule)))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(feature = "redis") { 60 } else { 300 }, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_answered_as_by_the_pure_function(
        mut rules in (any_rule(0), any_rule(1), any_rule(2)).prop_map(|(a, b, c)| vec![a, b, c]),
        steps in prop::collection::vec(any_step(), 1..120),
    ) {
        for store in STORES {
            let (name, subject) = (store.0, Subject::new(store));
            let mut model = Model::default();
            let mut holds: Vec<(usize, u8, Hold)> = Vec::new();
            for (nth, step) in steps.iter().enumerate() {
                let now = subject.clock.now();
                match step {
                    Step::Charge(all) => {
                        let charges: Vec<Charge> =
                            all.iter().map(|(nth, key, cost)| charge(&rules[*nth], &key.to_string(), *cost)).collect();
                        let decisions = subject.charge(&charges).unwrap();
                        prop_assert_eq!(&decisions, &model.charge(&charges, now), "{}, step {}", name, nth);
                        let taken = all.iter().zip(decisions);
                        holds.extend(taken.filter_map(|((rule, key, _), decision)| Some((*rule, *key, decision.hold?))));
                    }
                    Step::Inspect(nth, key) => {
                        let (rule, key) = (&rules[*nth], key.to_string());
                        let (untouched, _) = decide(&rule.quota, 0, model.state(rule.rule.name(), &key), now);
                        let (asked, _) = decide(&rule.quota, 1, model.state(rule.rule.name(), &key), now);
                        let expected = Decision { outcome: asked.outcome, ..untouched };
                        prop_assert_eq!(subject.inspect(rule, &key), expected);
                    }
                    Step::Reset(nth, key) => {
                        let (rule, key) = (&rules[*nth], key.to_string());
                        let state = std::mem::take(model.state(rule.rule.name(), &key));
                        let (before, _) = decide(&rule.quota, 0, &state, now);
                        prop_assert_eq!(subject.reset(rule, &key), before.reset_after > Span::ZERO);
                    }
                    Step::Release(pick) if !holds.is_empty() => {
                        let (nth, key, hold) = holds[pick % holds.len()];
                        let (rule, key) = (&rules[nth], key.to_string());
                        let released = model.state(rule.rule.name(), &key).release(hold) && hold.at + rule.quota.period() > now;
                        prop_assert_eq!(subject.release(rule, &key, hold), released);
                    }
                    Step::Renew(pick) if !holds.is_empty() => {
                        let place = pick % holds.len();
                        let (nth, key, hold) = holds[place];
                        let rule = &rules[nth];
                        let renewed = model.state(rule.rule.name(), &key.to_string()).renew(&rule.quota, hold, now);
                        prop_assert_eq!(subject.renew(rule, &key.to_string(), hold), renewed);
                        holds[place].2 = renewed.unwrap_or(hold);
                    }
                    Step::Release(_) | Step::Renew(_) => {}
                    Step::Move(micros) => {
                        subject.clock.set(Timestamp::from_micros(now.as_micros().saturating_add_signed(*micros)));
                    }
                    Step::Replace(nth, rule) => rules[*nth] = (**rule).clone(),
                }
            }
        }
    }

    /// Room for fewer keys than are used: eviction must not be visible, and keys with their own bucket are counted exactly,
    /// even if others of the same request share a bucket. All or nothing holds for both.
    #[test]
    fn a_small_memory_store_forgets_nothing_that_counts(
        rules in (any_rule(0), any_rule(1), any_rule(2)).prop_map(|(a, b, c)| [a, b, c]),
        max_keys in 1_usize..12,
        steps in prop::collection::vec((0..RULES, 0_u8..12, 1_u32..4, prop_oneof![0..2_000_u64, 0..8_000_000_u64]), 1..300),
    ) {
        let clock = ManualClock::at(NOON);
        let store = MemoryStore::with(max_keys, clock.clone());
        let mut model = Model::default();
        for (nth, key, cost, micros) in steps {
            clock.advance(Span::from_micros(micros));
            let now = clock.now();
            let second = (nth + 1) % RULES;
            let charges = [charge(&rules[nth], &key.to_string(), cost), charge(&rules[second], "shared", 1)];
            let before = store.overflowed().keys;
            let decisions = store.charge(&charges).unwrap();
            prop_assert!(store.len() <= max_keys);
            if store.overflowed().keys == before {
                prop_assert_eq!(decisions, model.charge(&charges, now));
                continue;
            }
            // A window may be kept for a sixteenth of its lifetime longer.
            let counts = |((name, _), state): (&(Arc<str>, String), &State)| {
                let quota = &rules.iter().find(|rule| rule.rule.name() == &**name).unwrap().quota;
                state.until(quota) + Span::from_micros(quota.full_refill().as_micros() / 8) > now
            };
            let kept = model.0.iter().filter(|entry| counts(*entry)).count();
            prop_assert!(kept + charges.len() > max_keys, "no room with {kept} of {max_keys} keys in use");
            let passes = charges.iter().zip(&decisions).all(|(charge, by)| by.is_allowed() || !charge.rule.is_enforced());
            for (charge, decision) in charges.iter().zip(&decisions) {
                let state = model.state(charge.rule.name(), &charge.key.value);
                if state.until(charge.quota()) <= now {
                    // Whether it got a bucket of its own or not: it is forgotten by both.
                    *state = State::default();
                    store.reset(charge.bucket());
                    continue;
                }
                let (expected, change) = decide(charge.quota(), charge.cost, state, now);
                prop_assert_eq!(decision.outcome, expected.outcome);
                if passes || !expected.is_allowed() {
                    state.apply(change);
                }
                prop_assert_eq!(store.inspect(charge.bucket()).remaining, decide(charge.quota(), 0, state, now).0.remaining);
            }
        }
    }
}
