//! What a refund promises: it never creates tokens, and if nothing else touched the key, its state is exactly as
//! before.

use proptest::prelude::*;
use tollkeeper_core::{Algorithm, Quota, Receipt, Span, State, Timestamp, decide};

const START: u64 = 1_700_000_000_000_000;

fn quotas() -> impl Strategy<Value = Quota> {
    let counts = prop_oneof![1u32..20, Just(3), Just(7_919), 1u32..10_000];
    let periods = prop_oneof![Just(1_000_000u64), Just(60_000_000), 1_000u64..10_000_000];
    (counts, periods, 1u32..40, prop::sample::select(Algorithm::ALL.to_vec())).prop_filter_map(
        "too large to count exactly",
        |(count, period, burst, algorithm)| {
            Quota::per(count, Span::from_micros(period)).burst(burst).algorithm(algorithm).build().ok()
        },
    )
}

/// Waits in thousandths of a refill, costs in thousandths of the limit.
fn steps() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((prop_oneof![Just(0u64), 0u64..300, 0u64..1_500], 0u64..500), 0..12)
}

fn share(of: u64, thousandths: u64) -> u64 {
    (u128::from(of) * u128::from(thousandths) / 1_000) as u64
}

fn cost_of(quota: &Quota, thousandths: u64) -> u32 {
    share(u64::from(quota.limit()), thousandths).max(1) as u32
}

fn charge(quota: &Quota, cost: u32, state: &mut State, now: u64) -> bool {
    let (decision, change) = decide(quota, cost, state, Timestamp::from_micros(now));
    state.apply(change);
    decision.is_allowed()
}

fn receipt(quota: &Quota, cost: u32, state: &State, now: Timestamp) -> Option<Receipt> {
    let (decision, change) = decide(quota, cost, state, now);
    Receipt::of(cost, &decision, &change, now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn alone_a_refund_undoes_the_charge(
        quota in quotas(), before in steps(), cost in 0u64..1_000, wait in 0u64..2_000, later in 0u64..2_000,
    ) {
        let (mut never, mut now) = (State::Fresh, START);
        let refill = quota.full_refill().as_micros();
        for (wait, cost) in before {
            now += share(refill, wait);
            charge(&quota, cost_of(&quota, cost), &mut never, now);
        }
        let at = Timestamp::from_micros(now);
        let mut state = never.clone();
        let cost = cost_of(&quota, cost);
        let Some(receipt) = receipt(&quota, cost, &state, at) else { return Ok(()) };
        prop_assert!(charge(&quota, cost, &mut state, now));
        let wait = share(refill, wait.saturating_sub(1_000));
        let refund_at = now + wait;
        state.refund(&quota, receipt, Timestamp::from_micros(refund_at));
        let owed_nothing = decide(&quota, 0, &never, at).0.reset_after == Span::ZERO;
        let then = Timestamp::from_micros(refund_at + share(refill, later));
        for cost in [0, 1, cost, quota.limit()] {
            let (refunded, untouched) = (decide(&quota, cost, &state, then).0, decide(&quota, cost, &never, then).0);
            if quota.refill().is_none() || owed_nothing || wait == 0 {
                prop_assert_eq!(refunded, untouched);
            } else if cost == 0 {
                prop_assert!(refunded.remaining <= untouched.remaining);
                prop_assert!(refunded.reset_after - untouched.reset_after <= Span::from_micros(wait));
            }
        }
    }

    /// Clients share a key, and some of their charges are refunded later. A second copy never makes those charges: it
    /// always has at least as much left, exactly as much unless it is a bucket, and a bucket is short by at most what
    /// it refilled before the refund.
    #[test]
    fn a_refund_mints_nothing(
        quota in quotas(),
        steps in prop::collection::vec((prop_oneof![Just(0u64), 0u64..60, 0u64..400], 0u64..400, 0usize..4), 1..14),
    ) {
        let (mut state, mut never, mut now) = (State::Fresh, State::Fresh, START);
        let refill = quota.full_refill().as_micros();
        let mut out: Vec<(Receipt, bool)> = Vec::new();
        let mut lost = 0;
        for (wait, cost, action) in steps {
            now += share(refill, wait);
            let at = Timestamp::from_micros(now);
            let cost = cost_of(&quota, cost);
            match action {
                // Taken for good.
                0 | 1 => {
                    if charge(&quota, cost, &mut state, now) {
                        prop_assert!(charge(&quota, cost, &mut never, now), "{quota}: the copy with refunds admits more");
                    }
                }
                // Taken, to come back later.
                2 => {
                    if let Some(receipt) = receipt(&quota, cost, &state, at) {
                        charge(&quota, cost, &mut state, now);
                        out.push((receipt, true));
                    }
                }
                _ => {
                    if let Some((receipt, pending)) = out.iter_mut().find(|(_, pending)| *pending) {
                        *pending = false;
                        state.refund(&quota, *receipt, at);
                        lost += now - receipt.at.as_micros();
                    }
                }
            }
            let left = |state: &State| decide(&quota, 0, state, at).0.remaining;
            prop_assert!(left(&state) <= left(&never), "{quota}: {} of {}", left(&state), left(&never));
            if out.iter().all(|(_, pending)| !pending) {
                let may_miss = match quota.refill() {
                    Some(_) => {
                        let refilled = u128::from(lost) * u128::from(quota.count());
                        refilled.div_ceil(u128::from(quota.period().as_micros())) as u32
                    }
                    None => 0,
                };
                prop_assert!(left(&state).saturating_add(may_miss) >= left(&never));
            }
        }
    }

    #[test]
    fn a_refund_finds_nothing_in_state_of_another_kind(quota in quotas(), other in quotas(), cost in 0u64..1_000) {
        let now = Timestamp::from_micros(START);
        let receipt = receipt(&quota, cost_of(&quota, cost), &State::Fresh, now).unwrap();
        let mut state = State::Fresh;
        prop_assert!(!state.refund(&quota, receipt, now));
        prop_assert_eq!(&state, &State::Fresh);
        charge(&other, 1, &mut state, START);
        let before = decide(&other, 0, &state, now).0.remaining;
        state.refund(&other, receipt, now);
        let after = decide(&other, 0, &state, now).0.remaining;
        prop_assert!(after >= before && after - before <= receipt.cost.max(1));
    }

    #[test]
    fn an_amount_refunded_is_what_was_used_and_never_more_than_the_limit(
        quota in quotas(), before in steps(), cost in 1u64..2_000, wait in 0u64..500,
    ) {
        let (mut state, mut now) = (State::Fresh, START);
        for (wait, cost) in before {
            now += share(quota.full_refill().as_micros(), wait);
            charge(&quota, cost_of(&quota, cost), &mut state, now);
        }
        now += share(quota.full_refill().as_micros(), wait);
        let at = Timestamp::from_micros(now);
        let left = |state: &State| decide(&quota, 0, state, at).0.remaining;
        let (before, cost) = (left(&state), cost_of(&quota, cost));
        for receipt in state.latest(&quota, cost, at) {
            state.refund(&quota, receipt, at);
        }
        let after = left(&state);
        prop_assert!(after <= quota.limit());
        prop_assert!(after >= before);
        prop_assert!(after - before <= cost, "{before} and a refund of {cost} make {after}");
        if matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket) {
            prop_assert_eq!(after, (before + cost).min(quota.limit()));
        }
    }
}
