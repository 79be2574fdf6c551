//! What settling an estimate promises: it never creates tokens, no time is lost, and what was used is charged.

use proptest::prelude::*;
use tollkeeper_core::{Algorithm, GivenBack, Quota, Receipt, Refunds, Span, State, Timestamp, decide};

const START: u64 = 1_700_000_000_000_000;

fn quotas() -> impl Strategy<Value = Quota> {
    let counts = prop_oneof![1u32..20, Just(3), Just(7_919), 1u32..10_000];
    let periods = prop_oneof![Just(1_000_000u64), Just(60_000_000), 1_000u64..10_000_000];
    let algorithms: Vec<_> = Algorithm::ALL.into_iter().filter(|one| *one != Algorithm::Concurrency).collect();
    (counts, periods, 1u32..200, prop::sample::select(algorithms)).prop_filter_map(
        "too large to count exactly",
        |(count, period, burst, algorithm)| {
            Quota::per(count, Span::from_micros(period)).burst(burst).algorithm(algorithm).build().ok()
        },
    )
}

fn share(of: u64, thousandths: u64) -> u64 {
    (u128::from(of) * u128::from(thousandths) / 1_000) as u64
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn left(quota: &Quota, state: &State, now: u64) -> u32 {
    decide(quota, 0, state, at(now)).0.remaining
}

/// The receipt, if it was admitted.
fn charge(quota: &Quota, cost: u32, state: &mut State, now: u64) -> Option<Receipt> {
    let (decision, change) = decide(quota, cost, state, at(now));
    let receipt = Receipt::of(cost, &decision, &change, at(now));
    state.apply(change);
    receipt
}

/// An unsettled estimate: its receipt, its actual cost, the refunds so far when it was charged, and the number of its
/// charge.
struct Out {
    receipt: Receipt,
    actual: u32,
    refunded_before: u64,
    nth: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Clients share a key, and some are charged an estimate first. A second copy knows the actual costs from the
    /// start: it always has at least as much left, whatever the order of settling.
    #[test]
    fn settling_mints_nothing(
        quota in quotas(),
        steps in prop::collection::vec(
            (prop_oneof![4 => Just(0u64), 1 => 0u64..60, 1 => 0u64..400, 1 => 0u64..1_500], 1u64..500, 0u64..=1_000, 0usize..5, any::<prop::sample::Index>()),
            1..32,
        ),
    ) {
        let (mut state, mut knowing, mut now) = (State::Fresh, State::Fresh, START);
        let mut out: Vec<Out> = Vec::new();
        // Which charge, and how much.
        let mut refunds: Vec<(usize, u64)> = Vec::new();
        // The same by their receipts, all of them or every other one as from 0.1.0, which knew no order within a moment.
        let (mut counted, mut mixed) = (Refunds::default(), Refunds::default());
        let of_two_versions = |receipt: Receipt, nth| Receipt { nth: if nth % 2 == 0 { receipt.nth } else { 0 }, ..receipt };
        let mut charged = 0;
        for (wait, cost, used, action, which) in steps {
            now += share(quota.full_refill().as_micros(), wait);
            let cost = share(u64::from(quota.limit()), cost).max(1) as u32;
            match action {
                0 | 1 => if charge(&quota, cost, &mut state, now).is_some() {
                    prop_assert!(charge(&quota, cost, &mut knowing, now).is_some(), "{quota}: the copy with estimates admits more");
                },
                2 | 3 => if let Some(receipt) = charge(&quota, cost, &mut state, now) {
                    let actual = share(u64::from(cost), used) as u32;
                    if actual > 0 {
                        prop_assert!(charge(&quota, actual, &mut knowing, now).is_some());
                    }
                    let refunded_before = refunds.iter().map(|(_, back)| back).sum();
                    charged += 1;
                    out.push(Out { receipt, actual, refunded_before, nth: charged });
                },
                _ if out.is_empty() => {}
                _ => {
                    let Out { receipt, actual, refunded_before, nth } = out.swap_remove(which.index(out.len()));
                    let of_earlier = refunds.iter().filter(|(of, _)| *of < nth).map(|(_, back)| back).sum::<u64>();
                    if quota.refill().is_some() {
                        let known = counted.since(receipt, refunded_before);
                        prop_assert_eq!(known, of_earlier - refunded_before, "{}: {} of {:?}", quota, counted, receipt);
                        prop_assert!(mixed.since(of_two_versions(receipt, nth), refunded_before) >= known, "{quota}: {mixed}");
                    }
                    let before = decide(&quota, 0, &state, at(now)).0.remaining;
                    let back = state.settle(&quota, receipt, actual, of_earlier - refunded_before, at(now));
                    refunds.push((nth, back.counted.into()));
                    if back.counted > 0 {
                        counted.add(receipt, refunded_before, back.counted.into(), at(now));
                        mixed.add(of_two_versions(receipt, nth), refunded_before, back.counted.into(), at(now));
                    }
                    let grown = decide(&quota, 0, &state, at(now)).0.remaining.saturating_sub(before);
                    prop_assert!(back.refunded <= back.counted && back.counted <= receipt.cost);
                    // What is said to be back is there, apart from a token that was refilled in part. A key that owes more than
                    // its limit has nothing left, and a counter weighs what is in its previous window.
                    prop_assert!(grown <= back.refunded, "{quota}: {grown} more, {back:?}");
                    let is_exact = quota.refill().is_some() && before > 0;
                    prop_assert!(!is_exact || grown + 1 >= back.refunded, "{quota}: {grown} more, {back:?}");
                }
            }
            let (estimating, knowing) = (left(&quota, &state, now), left(&quota, &knowing, now));
            prop_assert!(estimating <= knowing, "{quota}: {estimating} of {knowing} left");
        }
    }

    /// As long as the bucket owes more than is refunded, however much time has passed and whatever others took in
    /// between.
    #[test]
    fn settled_in_time_the_estimate_never_was(
        quota in quotas(),
        before in prop::collection::vec((0u64..200, 1u64..400), 0..6),
        (cost, used, wait) in (1u64..=1_000, 0u64..=1_000, 0u64..900),
        meanwhile in prop::collection::vec(1u64..300, 0..3),
    ) {
        let (mut knowing, mut now) = (State::Fresh, START);
        for (wait, cost) in before {
            now += share(quota.full_refill().as_micros(), wait);
            charge(&quota, share(u64::from(quota.limit()), cost).max(1) as u32, &mut knowing, now);
        }
        let (mut state, charged_at) = (knowing.clone(), now);
        let cost = share(u64::from(quota.limit()), cost).max(1) as u32;
        let actual = share(u64::from(cost), used) as u32;
        let Some(receipt) = charge(&quota, cost, &mut state, now) else { return Ok(()) };
        if actual > 0 {
            charge(&quota, actual, &mut knowing, now).unwrap();
        }
        let owed = decide(&quota, 0, &state, at(now)).0.reset_after.as_micros();
        for cost in meanwhile {
            now += share(quota.full_refill().as_micros(), wait / 3);
            let cost = share(u64::from(quota.limit()), cost).max(1) as u32;
            if charge(&quota, cost, &mut state, now).is_some() {
                charge(&quota, cost, &mut knowing, now).unwrap();
            }
        }
        state.settle(&quota, receipt, actual, 0, at(now));
        let is_in_time = quota.refill().is_none() || {
            // One microsecond less: the debt was rounded up.
            let token = quota.period().as_micros().div_ceil(u64::from(quota.count()));
            owed.saturating_sub(1) >= (now - charged_at) + token * u64::from(cost - actual)
        };
        if is_in_time {
            for cost in [0, 1, quota.limit()] {
                let then = at(now + share(quota.full_refill().as_micros(), wait));
                prop_assert_eq!(decide(&quota, cost, &state, then).0, decide(&quota, cost, &knowing, then).0);
            }
        }
    }

    /// What fits is charged like any request.
    #[test]
    fn used_beyond_the_estimate_is_charged(
        quota in quotas(), (before, cost, more, wait) in (0u64..400, 1u64..400, 1u64..3_000, 0u64..500),
    ) {
        let part = |thousandths: u64| share(u64::from(quota.limit()), thousandths).max(1) as u32;
        let (mut state, now) = (State::Fresh, START);
        charge(&quota, part(before), &mut state, now);
        let Some(receipt) = charge(&quota, part(cost), &mut state, now) else { return Ok(()) };
        let now = now + share(quota.full_refill().as_micros(), wait);
        let more = part(more);
        let (decision, change) = decide(&quota, more, &state, at(now));
        let mut charged = state.clone();
        charged.apply(change);
        prop_assert_eq!(state.settle(&quota, receipt, receipt.cost.saturating_add(more), 0, at(now)), GivenBack::default());
        if decision.is_allowed() {
            prop_assert_eq!(&state, &charged);
        } else {
            prop_assert_eq!(left(&quota, &state, now), 0, "it owes more than there is");
        }
        // No client waits for longer than two refills.
        let then = now + 2 * quota.full_refill().as_micros();
        prop_assert_eq!(left(&quota, &state, then), quota.limit());
        let (after, _) = decide(&quota, 1, &state, at(now));
        prop_assert!(after.is_allowed() || after.retry_after().unwrap().as_micros() <= 2 * quota.full_refill().as_micros());
    }
}

#[test]
fn a_settled_slot_is_free() {
    let quota = Quota::concurrent(1, Span::from_secs(60)).build().unwrap();
    let mut state = State::Fresh;
    let receipt = charge(&quota, 1, &mut state, START).unwrap();
    assert!(charge(&quota, 1, &mut state, START + 1).is_none());
    assert_eq!(state.settle(&quota, receipt, 5, 0, at(START + 2)).refunded, 1);
    assert!(charge(&quota, 1, &mut state, START + 3).is_some());
}
