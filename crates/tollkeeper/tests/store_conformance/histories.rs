//! Generated histories: every store answers them as the reference does, which is a map of states and the pure function that
//! decides: no shards, no packing, no expiry.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tollkeeper::{Algorithm, Charge, Decision, Enforcement, Hold, ManualClock, MemoryStore, Span, Timestamp};
use tollkeeper_core::{Change, Scalar, State, decide, is_denied};

use super::super::every_store::STORES;
use super::{Limited, NOON, Subject, charge, rule_with};

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
        let allowed = |mode| {
            let of_mode = charges.iter().zip(&decided).filter(move |(charge, _)| charge.rule.mode() == mode);
            of_mode.map(|(_, (decision, _))| decision.is_allowed()).collect::<Vec<bool>>()
        };
        let quotas = allowed(Enforcement::Quota);
        let denied = allowed(Enforcement::Enforce).contains(&false) || (!quotas.is_empty() && !quotas.contains(&true));
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
    let mode = prop::sample::select(vec![Enforcement::Enforce, Enforcement::Shadow, Enforcement::Quota]);
    (prop::sample::select(Algorithm::ALL.to_vec()), numbers, mode, calendar).prop_map(
        move |(algorithm, (count, period, burst), mode, calendar)| {
            let calendar = calendar.filter(|_| algorithm == Algorithm::FixedWindow);
            let period = calendar.unwrap_or(period);
            rule_with(&format!("rule-{nth}"), &format!("{count}/{period}"), |spec| {
                spec.algorithm = algorithm;
                spec.timezone = calendar.map(|_| "Europe/Berlin".into());
                spec.burst = algorithm.has_burst().then_some(Scalar::Number(burst.into()));
                spec.mode = mode;
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
            let kept: Vec<_> = model.0.iter().filter(|entry| counts(*entry)).map(|((rule, _), _)| &**rule).collect();
            // No rule gets more than eight times what is free: eight keys of one rule once left none of eleven for its ninth,
            // beside one key of each of two others.
            let free = max_keys.saturating_sub(kept.len() + charges.len() - 1);
            let has_share = |charge: &Charge| kept.iter().filter(|rule| **rule == charge.rule.name()).count() >= 8 * free;
            prop_assert!(charges.iter().any(has_share), "no room with {} of {max_keys} keys in use", kept.len());
            let passes = !is_denied(charges.iter().zip(&decisions));
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
