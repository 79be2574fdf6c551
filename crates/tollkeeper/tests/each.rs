//! Charges that are decided each by itself, in one call.

use std::sync::Arc;

use proptest::prelude::*;
use tollkeeper::{Algorithm, Charge, Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Rule, Span, Timestamp};

/// One charge of this key; each key has one of two rules.
fn charge(rules: &[Arc<Rule>; 2], key: u8, cost: u32) -> Charge {
    Charge::new(rules[usize::from(key % 2)].clone(), Key { variant: 0, value: key.to_string() }, cost)
}

fn rules(algorithm: Algorithm) -> [Arc<Rule>; 2] {
    let quota = Quota::per_second(3).algorithm(algorithm).build().unwrap();
    ["one", "two"].map(|name| {
        let rule = Rule::new(name).key("{id}").quota(quota);
        Arc::new(rule.build().expect("valid"))
    })
}

proptest! {
    #[test]
    fn they_are_answered_as_one_by_one(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        batches in prop::collection::vec((prop::collection::vec((0_u8..20, 0_u32..4), 0..70), 0_u64..500_000), 1..10),
    ) {
        let rules = rules(algorithm);
        let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
        let new = || Limiter::new(Policy::default(), MemoryStore::with(1_000, clock.clone()));
        let (together, alone) = (new(), new());
        for (batch, micros) in batches {
            clock.advance(Span::from_micros(micros));
            let charges: Vec<Charge> = batch.into_iter().map(|(key, cost)| charge(&rules, key, cost)).collect();
            let memory = alone.memory().expect("in this process");
            let mut decided = Vec::new();
            together.charge_each_now(&charges, &mut decided);
            prop_assert_eq!(decided.len(), charges.len());
            for (charge, decided) in charges.iter().zip(decided) {
                let expected = memory.charge(std::slice::from_ref(charge)).expect("there is room")[0];
                prop_assert_eq!(decided.expect("there is room"), expected);
            }
        }
    }
}

#[cfg(feature = "redis")]
#[test]
fn on_another_store_each_is_an_error() {
    use tollkeeper::{Clock, StoreError, UnreachableStore};
    let limiter = Limiter::new(Policy::default(), UnreachableStore::new("no route", Clock::system()));
    let rules = rules(Algorithm::TokenBucket);
    let mut decided = Vec::new();
    limiter.charge_each_now(&[charge(&rules, 1, 1), charge(&rules, 2, 1)], &mut decided);
    assert!(matches!(&decided[..], [Err(StoreError::Unavailable { .. }), Err(StoreError::Unavailable { .. })]));
    assert_eq!(limiter.store_errors(), 2);
}

/// The clock was read once for all of them, and again for a key that was new. So those after it were decided before it, and the last of
/// a burst was denied in more than half of all calls.
#[test]
fn a_whole_burst_of_a_new_key_passes() {
    let limiter = Limiter::new(Policy::default(), MemoryStore::new());
    let rule = Arc::new(Rule::new("one").key("{id}").limit("16/day").build().unwrap());
    let mut decided = Vec::new();
    for key in 0..2_000 {
        let charge = Charge::new(rule.clone(), Key { variant: 0, value: key.to_string() }, 1);
        limiter.charge_each_now(&vec![charge; 16], &mut decided);
        for (nth, decided) in decided.drain(..).enumerate() {
            let decision = decided.expect("there is room");
            assert!(decision.is_allowed(), "request {nth} of key {key}: {decision:?}");
        }
    }
}
