//! What leases promise: however tokens are leased, spent, lost and returned, no interval admits more than the limit.
//! The check uses only the times of the spends.

use proptest::prelude::*;
use tollkeeper_core::{Algorithm, Lease, Quota, Span, State, Timestamp, decide};

const START: u64 = 1_700_000_000_000_000;

fn quotas() -> impl Strategy<Value = Quota> {
    let algorithms = Algorithm::ALL.into_iter().filter(|algorithm| Lease::is_possible(*algorithm));
    let counts = prop_oneof![1u32..20, Just(3), Just(7_919), 1u32..2_000];
    let periods = prop_oneof![Just(1_000_000u64), 1_000u64..10_000_000];
    let plain = (counts.clone(), periods, 1u32..60, prop::sample::select(algorithms.collect::<Vec<_>>())).prop_map(
        |(count, period, burst, algorithm)| {
            Quota::per(count, Span::from_micros(period)).burst(burst).algorithm(algorithm).build().unwrap()
        },
    );
    let calendar = (counts, super::laws::calendars())
        .prop_map(|(count, calendar)| Quota::per_calendar(count, calendar).build().unwrap());
    prop_oneof![3 => plain, 1 => calendar]
}

/// One of the processes that share a state.
#[derive(Default)]
struct Process {
    leases: Vec<Lease>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Takes a share of what is left.
    Take,
    /// Spends a share of its newest or oldest lease.
    Spend { oldest: bool },
    /// Charges without a lease.
    Charge,
    /// Gives a lease back.
    Refund,
    /// Is killed: its leases are lost.
    Die,
}

fn steps() -> impl Strategy<Value = Vec<(u64, usize, u64, Step)>> {
    let step = prop_oneof![
        3 => Just(Step::Take),
        4 => any::<bool>().prop_map(|oldest| Step::Spend { oldest }),
        2 => Just(Step::Charge),
        2 => Just(Step::Refund),
        1 => Just(Step::Die),
    ];
    let wait = prop_oneof![Just(0u64), 0u64..40, 0u64..400, 0u64..1_200];
    prop::collection::vec((wait, 0usize..3, 0u64..1_001, step), 1..40)
}

fn share(of: u64, thousandths: u64) -> u64 {
    (u128::from(of) * u128::from(thousandths) / 1_000) as u64
}

/// At most burst + rate x elapsed over every interval; in windows at most N each; for the counter at most its
/// weighted sum.
fn admits_too_much(quota: &Quota, spends: &[(u64, u32)]) -> Option<String> {
    let (count, period) = (u128::from(quota.count()), u128::from(quota.period().as_micros()));
    if quota.refill().is_none() {
        let window = |at: u64| match quota.calendar() {
            Some(calendar) => calendar.window(Timestamp::from_micros(at)).start.as_micros(),
            None => at / quota.period().as_micros(),
        };
        return spends.iter().find_map(|(at, _)| {
            let sum: u32 = spends.iter().filter(|(other, _)| window(*other) == window(*at)).map(|(_, cost)| cost).sum();
            (sum > quota.limit()).then(|| format!("{sum} in the window of {at}"))
        });
    }
    for (first, (from, _)) in spends.iter().enumerate() {
        let mut sum = 0;
        for (to, cost) in &spends[first..] {
            sum += u128::from(*cost);
            if sum * period > u128::from(quota.limit()) * period + u128::from(to - from) * count {
                return Some(format!("{sum} from {from} to {to}"));
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_interval_admits_more_than_the_law(quota in quotas(), steps in steps()) {
        let (mut state, mut now) = (State::Fresh, START);
        let mut processes: [Process; 3] = Default::default();
        let mut spends: Vec<(u64, u32)> = Vec::new();
        for (wait, process, size, step) in steps {
            now += share(quota.full_refill().as_micros(), wait);
            let at = Timestamp::from_micros(now);
            let left = decide(&quota, 0, &state, at).0.remaining;
            let process = &mut processes[process];
            match step {
                Step::Take | Step::Charge => {
                    let tokens = share(u64::from(left), size) as u32;
                    let (decision, change) = decide(&quota, tokens, &state, at);
                    prop_assert!(decision.is_allowed());
                    if matches!(step, Step::Take) {
                        process.leases.extend(Lease::of(&quota, tokens, &change));
                    } else if tokens > 0 {
                        spends.push((now, tokens));
                    }
                    state.apply(change);
                }
                Step::Spend { oldest } => {
                    let lease = if oldest { process.leases.first_mut() } else { process.leases.last_mut() };
                    if let Some(lease) = lease {
                        let cost = share(u64::from(lease.left(&quota, at)), size) as u32;
                        prop_assert!(lease.spend(&quota, cost, at));
                        spends.push((now, cost));
                    }
                }
                Step::Refund => {
                    if let Some(lease) = process.leases.pop() && let Some(receipt) = lease.receipt(&quota, at) {
                        state.refund(&quota, receipt, at);
                    }
                }
                Step::Die => process.leases.clear(),
            }
            prop_assert_eq!(admits_too_much(&quota, &spends), None, "{}", quota);
        }
    }

    /// With no other client, taking a lease and returning it leaves no trace but what was spent.
    #[test]
    fn what_nobody_followed_goes_back(quota in quotas(), take in 1u64..1_001, spend in 0u64..1_001, wait in 0u64..900) {
        let (mut state, now) = (State::Fresh, Timestamp::from_micros(START));
        let tokens = share(u64::from(quota.limit()), take).max(1) as u32;
        let (_, change) = decide(&quota, tokens, &state, now);
        let mut lease = Lease::of(&quota, tokens, &change).unwrap();
        state.apply(change);
        let spent = share(u64::from(tokens), spend) as u32;
        prop_assert!(lease.spend(&quota, spent, now));
        let mut plain = State::Fresh;
        plain.apply(decide(&quota, spent, &plain, now).1);

        let then = now + Span::from_micros(share(quota.full_refill().as_micros(), wait));
        // What has expired with its window is gone.
        let ended = quota.refill().is_none() && lease.left(&quota, then) < tokens - spent;
        if let Some(receipt) = lease.receipt(&quota, then) {
            prop_assert!(state.refund(&quota, receipt, then));
        }
        let (returned, charged) = (decide(&quota, 0, &state, then).0, decide(&quota, 0, &plain, then).0);
        if ended {
            prop_assert!(returned.remaining <= charged.remaining);
        } else if wait == 0 || quota.refill().is_none() {
            prop_assert_eq!(returned, charged);
        } else {
            // A partly expired token cannot be distinguished from a spent one.
            prop_assert!(returned.remaining <= charged.remaining && charged.remaining - returned.remaining <= 1);
        }
    }
}

#[test]
fn a_lease_that_others_followed_stays_out_and_ends_by_itself() {
    let quota = Quota::per_second(10).burst(100).build().unwrap();
    let now = Timestamp::from_micros(START);
    let mut state = State::Fresh;
    let mut take = |tokens| {
        let (_, change) = decide(&quota, tokens, &state, now);
        state.apply(change.clone());
        Lease::of(&quota, tokens, &change).unwrap()
    };
    let (first, second) = (take(30), take(20));
    assert!(!state.refund(&quota, first.receipt(&quota, now).unwrap(), now));
    assert!(state.refund(&quota, second.receipt(&quota, now).unwrap(), now));
    // Now it is the last one again.
    assert!(state.refund(&quota, first.receipt(&quota, now).unwrap(), now));
    assert_eq!(decide(&quota, 0, &state, now).0.remaining, 100);
    assert_eq!(first.left(&quota, now + Span::from_secs(3)), 0);
}

#[test]
fn what_must_know_each_request_cannot_be_leased() {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::LeakyBucket, Algorithm::Concurrency] {
        let quota = Quota::per_second(10).algorithm(algorithm).build().unwrap();
        let (_, change) = decide(&quota, 5, &State::Fresh, Timestamp::from_micros(START));
        assert_eq!(Lease::of(&quota, 5, &change), None);
    }
}
