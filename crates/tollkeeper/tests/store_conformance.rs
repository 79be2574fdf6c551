//! What every store must do, whatever its implementation. A new store joins in `every_store.rs`.

mod changes;
mod exceptions;
mod histories;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use tollkeeper::{
    Algorithm, Charge, Decision, Enforcement, Hold, Key, ManualClock, Quota, Rule, RuleSpec, Span, Store, StoreError,
    Timestamp,
};
use tollkeeper_core::Scalar;

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

/// A request that only its rules with `mode: quota` deny together was charged by the others and then refunded, in a second
/// step that could fail; with an estimate it stayed charged. The store decides about all of them at once.
#[test]
fn quotas_that_deny_together_charge_nobody() {
    for_each_store(|subject| {
        let quota = |name: &str, limit: &str, algorithm| {
            rule_with(name, limit, |spec| (spec.mode, spec.algorithm) = (Enforcement::Quota, algorithm))
        };
        for algorithm in Algorithm::ALL {
            let user = format!("a-{algorithm}");
            let wide = rule("wide", "10/h", Algorithm::TokenBucket);
            let (one, two) = (quota("one", "1/h", algorithm), quota("two", "2/h", Algorithm::FixedWindow));
            let shadow = rule_with("shadow", "10/h", |spec| spec.mode = Enforcement::Shadow);
            let all =
                [charge(&wide, &user, 1), charge(&one, &user, 1), charge(&shadow, &user, 1), charge(&two, &user, 1)];
            let outcomes = || {
                let decisions = subject.charge(&all).unwrap();
                decisions.iter().map(|decision| (decision.is_allowed(), decision.remaining)).collect::<Vec<_>>()
            };
            assert_eq!(outcomes(), [(true, 9), (true, 0), (true, 9), (true, 1)], "{algorithm}");
            assert_eq!(outcomes(), [(true, 8), (false, 0), (true, 8), (true, 0)], "{algorithm}: one of them has room");
            for _ in 0..3 {
                assert_eq!(outcomes(), [(true, 8), (false, 0), (true, 8), (false, 0)], "{algorithm}: none has");
            }
            assert_eq!(subject.inspect(&wide, &user).remaining, 8, "{algorithm}");
            assert_eq!(subject.inspect(&shadow, &user).remaining, 8, "{algorithm}");
        }
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
