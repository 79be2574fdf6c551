//! Rules that change while their state lives: if the limit is raised, a waiting client passes; if it is lowered, no
//! client gets a fresh burst.

use tollkeeper::{Algorithm, Span};
use tollkeeper_core::Scalar;

use super::{Limited, NOON, Subject, for_each_store, rule, rule_with};

/// `rule` in place of `former`, as of now.
fn in_place_of(rule: &Limited, former: &Limited, subject: &Subject) -> Limited {
    rule.by(rule.quota.in_place_of(&former.quota, subject.clock.now()))
}

fn empty(subject: &Subject, rule: &Limited, key: &str) {
    let limit = rule.quota.limit();
    assert!(subject.charge_one(rule, key, limit).is_allowed());
    assert!(!subject.charge_one(rule, key, 1).is_allowed());
}

#[test]
fn a_raise_lets_the_waiting_client_pass_now() {
    for_each_store(|subject| {
        for algorithm in Algorithm::ALL {
            let (low, high) =
                (rule(algorithm.name(), "10/60s", algorithm), rule(algorithm.name(), "25/60s", algorithm));
            empty(&subject, &low, "a");
            let high = in_place_of(&high, &low, &subject);
            let passed = subject.charge_one(&high, "a", 1);
            assert!(passed.is_allowed(), "{algorithm}");
            assert_eq!(passed.remaining, 14, "{algorithm}: what was missing is still missing");
        }
    });
}

#[test]
fn a_lower_limit_gives_no_fresh_burst() {
    for_each_store(|subject| {
        for algorithm in Algorithm::ALL {
            let (high, low) =
                (rule(algorithm.name(), "25/60s", algorithm), rule(algorithm.name(), "10/60s", algorithm));
            empty(&subject, &high, "a");
            assert!(subject.charge_one(&high, "b", 4).is_allowed());
            let low = in_place_of(&low, &high, &subject);
            assert!(!subject.charge_one(&low, "a", 1).is_allowed(), "{algorithm}");
            assert_eq!(subject.inspect(&low, "a").remaining, 0, "{algorithm}");
            assert_eq!(subject.charge_one(&low, "b", 1).remaining, 5, "{algorithm}: four were missing");
            let wait = subject.charge_one(&low, "a", 1).retry_after().unwrap();
            assert!(wait <= low.quota.full_refill(), "{algorithm}");
        }
    });
}

/// A bucket continues at the new pace from the moment of the change, whether it is read in between or not, and waits
/// stay exact to the microsecond.
#[test]
fn waits_are_exact_after_a_change_of_pace() {
    for_each_store(|subject| {
        // Awkward numbers: fractions of microseconds on both sides.
        let slow = rule_with("pace", "7/90s", |spec| spec.burst = Some(Scalar::Number(5)));
        let fast = rule_with("pace", "7919/s", |spec| spec.burst = Some(Scalar::Number(5)));
        for (from, to) in [(&slow, &fast), (&fast, &slow)] {
            subject.clock.set(NOON);
            subject.reset(from, "a");
            empty(&subject, from, "a");
            let to = in_place_of(to, from, &subject);
            let wait = subject.charge_one(&to, "a", 2).retry_after().unwrap();
            assert_eq!(wait, subject.charge_one(&to, "a", 2).retry_after().unwrap(), "asking again changes nothing");
            subject.clock.advance(wait - Span::from_micros(1));
            assert!(!subject.charge_one(&to, "a", 2).is_allowed());
            subject.clock.advance(Span::from_micros(1));
            assert!(subject.charge_one(&to, "a", 2).is_allowed());
        }
    });
}

/// Not read through three changes: each pace counts for as long as it was in force.
#[test]
fn several_changes_are_followed_one_after_the_other() {
    for_each_store(|subject| {
        let limit =
            |limit: &str, burst: u64| rule_with("steps", limit, |spec| spec.burst = Some(Scalar::Number(burst)));
        let first = limit("1/s", 100);
        empty(&subject, &first, "a");
        subject.clock.advance(Span::from_secs(10));
        let second = in_place_of(&limit("2/s", 200), &first, &subject);
        subject.clock.advance(Span::from_secs(10));
        let third = in_place_of(&limit("5/s", 100), &second, &subject);
        subject.clock.advance(Span::from_secs(2));
        // 10 + 20 + 10 of the missing 100 have been refilled.
        assert_eq!(subject.inspect(&third, "a").remaining, 40);
        assert_eq!(subject.charge_one(&third, "a", 40).remaining, 0);
    });
}

/// After a restart with other numbers the old ones are unknown.
#[test]
fn by_unknown_numbers_nobody_gets_a_burst_or_waits_for_longer_than_a_refill() {
    for_each_store(|subject| {
        let slow = rule("unknown", "2/day", Algorithm::TokenBucket);
        let fast = rule("unknown", "10/s", Algorithm::TokenBucket);
        empty(&subject, &slow, "a");
        assert_eq!(subject.charge_one(&fast, "a", 1).retry_after(), Some(Span::from_micros(100_000)));
        subject.clock.advance(Span::from_micros(100_000));
        assert!(subject.charge_one(&fast, "a", 1).is_allowed());
    });
}
