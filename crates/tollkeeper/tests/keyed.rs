//! The simple API.

use proptest::prelude::*;
use tollkeeper::{Algorithm, Decision, FailurePolicy, Keyed, ManualClock, Quota, QuotaError, Span, Timestamp, keyed};

fn at_noon(limiter: Keyed) -> (Keyed, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    (limiter.with_clock(clock.clone()), clock)
}

#[test]
fn takes_a_quota_built_or_not() {
    let built = Quota::per_second(50).burst(100).build().unwrap();
    assert_eq!(keyed(built).unwrap().quota(), keyed(Quota::per_second(50).burst(100)).unwrap().quota());
    assert_eq!(keyed(Quota::per_second(0)).unwrap_err(), QuotaError::Zero { field: "limit" });
}

#[test]
fn keys_that_hash_alike_are_one() {
    let (limiter, _) = at_noon(keyed(Quota::per_second(1)).unwrap());
    assert!(limiter.check("a").is_allowed());
    assert!(!limiter.check(&String::from("a")).is_allowed());
    assert!(limiter.check(&("a", 1)).is_allowed());
    assert!(limiter.check(&std::net::Ipv4Addr::LOCALHOST).is_allowed());
}

#[test]
fn costs_peeks_and_resets() {
    let (limiter, clock) = at_noon(keyed(Quota::per_second(10)).unwrap());
    assert_eq!(limiter.check_cost("a", 7).remaining, 3);
    assert_eq!(limiter.peek("a").remaining, 3);
    assert_eq!(limiter.check_cost("a", 4).retry_after(), Some(Span::from_micros(100_000)));
    assert!(limiter.reset("a"));
    assert!(!limiter.reset("a"));
    assert!(limiter.is_empty());
    limiter.check("a");
    clock.advance(Span::SECOND);
    assert_eq!(limiter.peek("a").remaining, 10);
}

#[test]
fn slots_are_released() {
    let (limiter, _) = at_noon(keyed(Quota::concurrent(1, Span::from_secs(60))).unwrap());
    let hold = limiter.check("a").hold.unwrap();
    assert!(!limiter.check("a").is_allowed());
    assert!(limiter.release("a", hold));
    assert!(!limiter.release("a", hold));
    assert!(limiter.check("a").is_allowed());
}

#[test]
fn a_full_limiter_answers_as_configured() {
    for (policy, passes) in [(FailurePolicy::Open, true), (FailurePolicy::Closed, false)] {
        let (limiter, clock) = at_noon(keyed(Quota::per_second(1)).unwrap().with_max_keys(2).on_full(policy));
        limiter.check("a");
        limiter.check("b");
        let decision = limiter.check("c");
        assert_eq!(decision.is_allowed(), passes);
        assert_eq!(decision.retry_after(), Some(if passes { Span::ZERO } else { Span::SECOND }));
        assert!(!limiter.check("a").is_allowed(), "who is limited stays limited");
        clock.advance(Span::SECOND);
        assert_eq!(limiter.check("c").remaining, 0);
        assert!(limiter.len() <= 2);
    }
}

/// By default new keys share what 64 keys would get, so a flood limits itself.
#[test]
fn a_full_limiter_counts_newcomers_together() {
    let (limiter, clock) = at_noon(keyed(Quota::per_hour(3)).unwrap().with_max_keys(2));
    assert_eq!((0..10_000).filter(|key| limiter.check(key).is_allowed()).count(), 2 + 3 * 64);
    assert_eq!((0..9).filter(|_| limiter.check(&0).is_allowed()).count(), 2, "who is counted has a bucket of its own");
    assert!(!limiter.check("newcomer").is_allowed() && !limiter.peek("newcomer").is_allowed());
    clock.advance(Span::from_secs(60 * 60));
    assert_eq!(limiter.check("newcomer").remaining, 2);
}

#[test]
fn threads_admit_exactly_the_burst() {
    let (limiter, _) = at_noon(keyed(Quota::per_hour(10_000)).unwrap());
    let passed = |limiter: &Keyed| (0..20_000).filter(|_| limiter.check("hot").is_allowed()).count();
    let total = std::thread::scope(|threads| {
        let threads: Vec<_> = (0..4).map(|_| threads.spawn(|| passed(&limiter))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(total, 10_000);
}

/// The clock was read once for a batch, and again for a key that was new: the others of that key were decided before it, and the last of a
/// burst was denied.
#[test]
fn a_whole_burst_of_a_new_key_passes_in_a_batch() {
    let limiter = keyed(Quota::per_day(16)).unwrap();
    for key in 0..2_000 {
        let decisions = limiter.check_many(&[key; 16]);
        assert!(decisions.iter().all(Decision::is_allowed), "key {key}: {decisions:?}");
    }
}

proptest! {
    #[test]
    fn a_batch_is_answered_as_one_by_one(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        batches in prop::collection::vec((prop::collection::vec(0_u8..20, 0..70), 0_u64..500_000), 1..10),
        max_keys in prop::sample::select(vec![5_usize, 1_000]),
    ) {
        // Which new keys share a bucket is random, so they pass here.
        let quota = Quota::per_second(3).algorithm(algorithm);
        let new = || at_noon(keyed(quota).unwrap().with_max_keys(max_keys).on_full(FailurePolicy::Open));
        let ((together, clock), (alone, same_clock)) = (new(), new());
        for (keys, micros) in batches {
            clock.advance(Span::from_micros(micros));
            same_clock.set(clock.now());
            let expected: Vec<Decision> = keys.iter().map(|key| alone.check(key)).collect();
            prop_assert_eq!(together.check_many(&keys), expected);
        }
    }
}
