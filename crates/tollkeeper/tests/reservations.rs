//! Estimates that are settled later, over every store: each behaves as the core's pure function says.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollkeeper::{
    Actual, Algorithm, Descriptor, Enforcement, Exception, ExceptionKind, Limiter, ManualClock, Policy, Reservation,
    RuleSpec, Span, Ticket, Timestamp, Verdict,
};
use tollkeeper_core::{CostSpec, EstimatedCost, Receipt, Refunds, State, decide};

use super::every_store::{NewStore, STORES, now_or_never, turn};

const NOON: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn rule(name: &str, limit: &str) -> RuleSpec {
    RuleSpec { name: name.into(), key: "{user}".into(), limit: limit.into(), ..RuleSpec::default() }
}

fn limiter(new: NewStore, clock: &ManualClock, rules: Vec<RuleSpec>) -> Arc<Limiter> {
    Arc::new(Limiter::new(Policy::new(rules).unwrap(), new(clock.clone())))
}

fn user(name: &str, cost: u32) -> Descriptor {
    Descriptor::new([("user", name)]).with_cost(cost)
}

fn reserve(limiter: &Arc<Limiter>, request: &Descriptor) -> (Verdict, Reservation) {
    now_or_never(limiter.reserve(request)).unwrap()
}

fn left(limiter: &Limiter, rule: &str, key: &str) -> u32 {
    now_or_never(limiter.inspect(rule, key)).unwrap().unwrap()[0].decision.remaining
}

/// Every store, one after the other, on its own clock.
fn each_store(test: impl Fn(&str, NewStore, &ManualClock)) {
    for (name, new) in STORES {
        let (_turn, clock) = (turn(name), ManualClock::at(NOON));
        test(name, *new, &clock);
    }
}

/// The estimate of a request that only its rules with `mode: quota` deny together stayed charged by the others.
#[test]
fn an_estimate_that_quotas_deny_together_is_charged_nowhere() {
    each_store(|name, new, clock| {
        let quota = |name: &str, limit: &str| rule(name, limit).mode(Enforcement::Quota);
        let rules =
            vec![rule("wide", "100/h"), quota("one", "10/h"), quota("two", "20/h"), rule("busy", "3/h").shadow()];
        let limiter = limiter(new, clock, rules);
        for (cost, passes) in [(10, true), (10, true), (10, false), (10, false), (1, false)] {
            let (verdict, reservation) = reserve(&limiter, &user("a", cost));
            assert_eq!((verdict.is_allowed(), reservation.is_empty()), (passes, !passes), "{name}");
        }
        assert_eq!(left(&limiter, "wide", "a"), 80, "{name}");
        // What is blocked has no room; what is allowed has, and the others then have no say.
        let except = |rule: &str, kind| now_or_never(limiter.except(Exception::new(rule, "a", kind))).unwrap();
        except("one", ExceptionKind::Block);
        assert!(!reserve(&limiter, &user("a", 1)).0.is_allowed(), "{name}");
        except("one", ExceptionKind::Allow);
        assert!(reserve(&limiter, &user("a", 1)).0.is_allowed(), "{name}");
        assert!(now_or_never(limiter.check(&user("a", 1))).unwrap().is_allowed(), "{name}");
        assert_eq!(left(&limiter, "wide", "a"), 78, "{name}");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Check(u32),
    Reserve(u32),
    Settle(usize, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u64..4_000_000).prop_map(Step::Wait),
        (0u32..60).prop_map(Step::Check),
        (1u32..60).prop_map(Step::Reserve),
        (1u32..60).prop_map(Step::Reserve),
        (any::<usize>(), 0u32..90).prop_map(|(which, cost)| Step::Settle(which, cost)),
        (any::<usize>(), 0u32..20).prop_map(|(which, cost)| Step::Settle(which, cost)),
    ];
    prop::collection::vec(step, 1..30)
}

#[test]
fn every_store_settles_as_the_core_does() {
    each_store(|name, new, clock| {
        let algorithms = [
            Algorithm::TokenBucket,
            Algorithm::FixedWindow,
            Algorithm::SlidingWindowLog,
            Algorithm::SlidingWindowCounter,
            Algorithm::LeakyBucket,
        ];
        let cases = if name == "memory" { 200 } else { 12 };
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let run = std::cell::Cell::new(0);
        let any_limit = prop::sample::select(vec!["10/s", "7/s", "50/min", "100/10s"]);
        runner
            .run(&(prop::sample::select(algorithms.to_vec()), any_limit, steps()), |(algorithm, limit, steps)| {
                run.set(run.get() + 1);
                let spec = RuleSpec { algorithm, ..rule(&format!("r{}", run.get()), limit) };
                let limiter = limiter(new, clock, vec![spec]);
                let quota = *limiter.policy().rules()[0].quota();
                let (mut state, mut refunds) = (State::Fresh, Refunds::default());
                let mut out: Vec<(Reservation, Receipt, u64)> = Vec::new();
                for step in steps {
                    let now = clock.now();
                    match step {
                        Step::Wait(micros) => clock.advance(Span::from_micros(micros)),
                        Step::Check(cost) => {
                            let verdict = now_or_never(limiter.check(&user("a", cost))).unwrap();
                            let (decision, change) = decide(&quota, cost, &state, now);
                            state.apply(change);
                            prop_assert_eq!(verdict.rows()[0].decision, decision);
                        }
                        Step::Reserve(cost) => {
                            let (verdict, reservation) = reserve(&limiter, &user("a", cost));
                            let (decision, change) = decide(&quota, cost, &state, now);
                            let receipt = Receipt::of(cost, &decision, &change, now);
                            state.apply(change);
                            prop_assert_eq!(verdict.rows()[0].decision, decision);
                            prop_assert_eq!(reservation.is_empty(), receipt.is_none());
                            out.extend(receipt.map(|receipt| (reservation, receipt, refunds.total(now))));
                        }
                        Step::Settle(_, _) if out.is_empty() => {}
                        Step::Settle(which, cost) => {
                            let which = which % out.len();
                            let (reservation, receipt, before) = out.swap_remove(which);
                            let settled = now_or_never(reservation.settle(cost)).unwrap();
                            let back = state.settle(&quota, receipt, cost, refunds.since(receipt, before), now);
                            if back.counted > 0 {
                                refunds.add(receipt, before, back.counted.into(), now);
                            }
                            let row = &settled.rows[0];
                            prop_assert_eq!(
                                (row.reserved, row.refunded, row.charge.cost),
                                (receipt.cost, back.refunded, cost)
                            );
                            let untouched = decide(&quota, 0, &state, now).0;
                            prop_assert_eq!(row.decision.remaining, untouched.remaining);
                            prop_assert_eq!(row.decision.reset_after, untouched.reset_after);
                        }
                    }
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    });
}

#[test]
fn each_rule_is_corrected_by_its_own_cost() {
    each_store(|name, new, clock| {
        let requests = rule("requests", "100/day");
        let tokens = RuleSpec {
            cost: CostSpec::Estimated(EstimatedCost { from: "tokens".into(), estimate: 500 }),
            ..rule("tokens", "10,000/day")
        };
        let everybody =
            RuleSpec { key: "all of them".into(), cost: "tokens".into(), ..rule("everybody", "1,000,000/day") };
        let slots = RuleSpec { algorithm: Algorithm::Concurrency, ..rule("slots", "1") };
        let limiter = limiter(new, clock, vec![requests, tokens, everybody, slots]);
        let now = || ["requests", "tokens", "slots"].map(|rule| left(&limiter, rule, "a"));

        let (verdict, reservation) = reserve(&limiter, &user("a", 1));
        assert!(verdict.is_allowed(), "{name}");
        assert_eq!(now(), [99, 9_500, 0], "{name}");
        let (denied, nothing) = reserve(&limiter, &user("a", 1));
        assert!(!denied.is_allowed() && nothing.is_empty(), "{name}: there is one slot");
        let settled = now_or_never(reservation.settle(Actual::default().attribute("tokens", "2311"))).unwrap();
        assert_eq!(settled.rows.len(), 4, "{name}");
        assert_eq!(now(), [99, 7_689, 1], "{name}");
        assert_eq!(left(&limiter, "everybody", "all of them"), 1_000_000 - 2_311, "{name}");

        let (_, dropped) = reserve(&limiter, &user("a", 1));
        now_or_never(async { drop(dropped) });
        while left(&limiter, "slots", "a") == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(now(), [98, 7_189, 1], "{name}: the estimate stays, and the slot is free");

        let (_, cancelled) = reserve(&limiter, &user("a", 1));
        let wrong = now_or_never(cancelled.settle(Actual::default().attribute("tokens", "many"))).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "attribute `tokens` is the cost of rule `tokens` and must be a whole number, not \"many\""
        );
    });
}

#[test]
fn a_ticket_is_redeemed_by_anybody_once() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "1000/day")]);
        let (_, reservation) = reserve(&limiter, &user("a", 400));
        let ticket = serde_json::to_vec(&reservation.into_ticket()).unwrap();
        now_or_never(limiter.keep("id", &ticket, &[], Duration::from_secs(60))).unwrap();
        assert_eq!(now_or_never(limiter.claim("other")).unwrap(), None, "{name}");
        let claimed = now_or_never(limiter.claim("id")).unwrap().unwrap();
        assert_eq!(now_or_never(limiter.claim("id")).unwrap(), None, "{name}: once");
        let ticket: Ticket = serde_json::from_slice(&claimed).unwrap();
        now_or_never(limiter.redeem(ticket).settle(100)).unwrap();
        assert_eq!(left(&limiter, "tokens", "a"), 900, "{name}");
    });
}

#[test]
fn a_ticket_of_another_time_gives_nothing_back() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "1000/day"), rule("gone", "1000/day")]);
        let (_, reservation) = reserve(&limiter, &user("a", 400));
        let ticket = reservation.into_ticket();
        limiter.replace_policy(Policy::new([rule("tokens", "500/day")]).unwrap());
        let before = left(&limiter, "tokens", "a");
        let settled = now_or_never(limiter.redeem(ticket).settle(0)).unwrap();
        assert_eq!((settled.rows.len(), settled.rows[0].refunded), (1, 0), "{name}");
        assert_eq!(left(&limiter, "tokens", "a"), before, "{name}");
    });
}

#[test]
fn a_ticket_that_nobody_claims_ends_by_itself() {
    let clock = ManualClock::at(NOON);
    let (_, new) = STORES[0];
    let limiter = limiter(new, &clock, vec![rule("tokens", "1000/s")]);
    now_or_never(limiter.keep("id", b"ticket", &[], Duration::from_secs(60))).unwrap();
    clock.advance(Span::from_secs(60));
    assert_eq!(now_or_never(limiter.claim("id")).unwrap(), None);
}

#[test]
fn settled_too_late_a_bucket_is_given_nothing_back() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "1000/day")]);
        let (_, reservation) = now_or_never(limiter.reserve_for(&user("a", 400), Duration::ZERO)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        let settled = now_or_never(reservation.settle(100)).unwrap();
        assert_eq!((settled.rows[0].refunded, left(&limiter, "tokens", "a")), (0, 600), "{name}");
    });
}

/// When the newest was settled first, half of the unused cost stayed charged: refunds of later charges were counted
/// against earlier ones.
#[test]
fn in_whatever_order_they_are_settled_all_that_was_not_used_goes_back() {
    each_store(|name, new, clock| {
        for newest_first in [true, false] {
            let limiter = limiter(new, clock, vec![rule(&format!("tokens-{newest_first}"), "100/day")]);
            let mut out: Vec<Reservation> = Vec::new();
            for _ in 0..10 {
                out.push(reserve(&limiter, &user("a", 10)).1);
                clock.advance(Span::from_micros(10));
            }
            if newest_first {
                out.reverse();
            }
            let refunded: Vec<u32> =
                out.into_iter().map(|one| now_or_never(one.settle(0)).unwrap().rows[0].refunded).collect();
            assert_eq!(refunded, [10; 10], "{name}");
            // What was refilled in the meantime is not refunded again.
            clock.advance(Span::from_micros(1_000));
            assert_eq!(left(&limiter, &format!("tokens-{newest_first}"), "a"), 100, "{name}");
        }
    });
}

/// The charges of one moment had no order, and what came back of one of them was not given back of the others. Nor did the threads
/// of one process get all of it, if one settled between another's look at the refunds and its charge.
#[test]
fn estimates_of_one_moment_by_several_callers_are_corrected_exactly() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "1,000/day")]);
        let keys: Vec<String> = (0..if name == "memory" { 6_000 } else { 5 }).map(|key| key.to_string()).collect();
        let call = || {
            for (key, turn) in keys.iter().flat_map(|key| [0, 1, 2, 3].map(|turn| (key, turn))) {
                let mut out = [1, 5, 3].map(|cost| reserve(&limiter, &user(key, cost)).1);
                out.rotate_left(turn % 3);
                for (nth, reservation) in out.into_iter().enumerate() {
                    // One in three has cost something.
                    now_or_never(reservation.settle(u32::from(nth == 1))).unwrap();
                }
            }
        };
        std::thread::scope(|scope| (0..5).for_each(|_| _ = scope.spawn(call)));
        for key in &keys {
            assert_eq!(left(&limiter, "tokens", key), 1_000 - 5 * 4, "{name}, {key}");
        }
    });
}

/// A bucket that had refilled most of an estimate got the rest back, and all that was not used was reported as refunded.
#[test]
fn what_was_refilled_in_the_meantime_is_not_reported_as_refunded() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "100/s")]);
        let (_, reservation) = reserve(&limiter, &user("a", 80));
        clock.advance(Span::from_micros(605_000));
        let settled = now_or_never(reservation.settle(10)).unwrap();
        // 60.5 tokens were refilled, so 19.5 were missing.
        assert_eq!((settled.rows[0].refunded, left(&limiter, "tokens", "a")), (20, 100), "{name}");
    });
}

/// A reset refunded what was reserved, and settling refunded it again.
#[test]
fn what_a_reset_refunded_is_not_refunded_again() {
    let algorithms =
        [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter];
    each_store(|name, new, clock| {
        for algorithm in algorithms {
            let limiter = limiter(new, clock, vec![RuleSpec { algorithm, ..rule("tokens", "100/day") }]);
            let (_, reservation) = reserve(&limiter, &user("a", 100));
            clock.advance(Span::from_micros(7));
            assert!(now_or_never(limiter.reset("tokens", &"a".into())).unwrap().unwrap());
            assert!(now_or_never(limiter.check(&user("a", 100))).unwrap().is_allowed());
            let settled = now_or_never(reservation.settle(0)).unwrap();
            assert_eq!((settled.rows[0].refunded, left(&limiter, "tokens", "a")), (0, 0), "{name}, {algorithm}");
            // Later ones are settled as usual.
            now_or_never(limiter.reset("tokens", &"a".into())).unwrap().unwrap();
            let (_, reservation) = reserve(&limiter, &user("a", 100));
            now_or_never(reservation.settle(40)).unwrap();
            assert_eq!(left(&limiter, "tokens", "a"), 60, "{name}, {algorithm}");
            now_or_never(limiter.reset("tokens", &"a".into())).unwrap().unwrap();
        }
    });
}

/// On Redis, a refund of an amount counted as that of a later charge, and what had been reserved before was refunded again.
#[test]
fn what_an_amount_refunded_is_not_refunded_again() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "100/day")]);
        let (verdict, reservation) = reserve(&limiter, &user("a", 100));
        clock.advance(Span::from_micros(7));
        now_or_never(limiter.refund(&[verdict.rows()[0].charge.clone()])).unwrap();
        assert!(now_or_never(limiter.check(&user("a", 100))).unwrap().is_allowed());
        let settled = now_or_never(reservation.settle(0)).unwrap();
        assert_eq!((settled.rows[0].refunded, left(&limiter, "tokens", "a")), (0, 0), "{name}");
    });
}

/// What had been refunded before the clock stepped back was not told apart from what was refunded after it, and estimates got back
/// what had been refilled and used again.
#[test]
fn a_clock_that_steps_back_refunds_no_more() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "100/100s")]);
        let settle = |reservation: Reservation| now_or_never(reservation.settle(0)).unwrap().rows[0].refunded;
        let step = |back: u64| clock.set(Timestamp::from_micros(clock.now().as_micros() - back * 1_000_000));
        assert_eq!(settle(reserve(&limiter, &user("a", 100)).1), 100, "{name}");
        step(50);
        let (one, other) = (reserve(&limiter, &user("a", 90)).1, reserve(&limiter, &user("a", 10)).1);
        assert_eq!(settle(one), 90, "{name}");
        clock.advance(Span::from_secs(10));
        assert!(now_or_never(limiter.check(&user("a", 100))).unwrap().is_allowed(), "{name}");
        assert_eq!((settle(other), left(&limiter, "tokens", "a")), (0, 0), "{name}: ten were refilled");

        // The same for an estimate from before the step.
        let earlier = reserve(&limiter, &user("b", 40)).1;
        step(10);
        let later = reserve(&limiter, &user("b", 10)).1;
        assert_eq!(settle(earlier), 40, "{name}");
        clock.advance(Span::from_secs(20));
        assert!(now_or_never(limiter.check(&user("b", 100))).unwrap().is_allowed(), "{name}");
        assert_eq!((settle(later), left(&limiter, "tokens", "b")), (0, 0), "{name}: ten were refilled");
    });
}

/// The refunds of a bucket had been forgotten when a ticket was redeemed long after its hold, and it got back what had been refilled
/// and used again.
#[test]
fn a_ticket_redeemed_too_late_is_given_nothing_back() {
    each_store(|name, new, clock| {
        for is_tracked_again in [false, true] {
            let limiter = limiter(new, clock, vec![rule(&format!("tokens-{is_tracked_again}"), "100/100s")]);
            let hold = Duration::from_millis(50);
            let ticket = |cost| now_or_never(limiter.reserve_for(&user("a", cost), hold)).unwrap().1.into_ticket();
            let settle = |ticket| now_or_never(limiter.redeem(ticket).settle(0)).unwrap().rows[0].refunded;
            let (one, other) = (ticket(90), ticket(10));
            assert_eq!(settle(one), 90, "{name}");
            clock.advance(Span::from_secs(10));
            std::thread::sleep(3 * hold);
            let check = |cost| now_or_never(limiter.check(&user("a", cost))).unwrap().is_allowed();
            let is_used = if is_tracked_again { reserve(&limiter, &user("a", 100)).0.is_allowed() } else { check(100) };
            assert!(is_used, "{name}");
            assert_eq!(settle(other), 0, "{name}, {is_tracked_again}: ten were refilled");
        }
    });
}

/// After a step of the clock the memory store had forgotten the refunds of a bucket, and an estimate got back what had been refilled
/// and used again.
#[test]
fn whose_refunds_were_forgotten_is_given_nothing_back() {
    let clock = ManualClock::at(NOON);
    let (_, new) = STORES[0];
    let limiter = limiter(new, &clock, vec![rule("tokens", "100/day")]);
    let (one, other) = (reserve(&limiter, &user("a", 90)).1, reserve(&limiter, &user("a", 1)).1);
    let settle = |reservation: Reservation| now_or_never(reservation.settle(0)).unwrap().rows[0].refunded;
    assert_eq!(settle(one), 90);
    clock.advance(Span::from_secs(21 * 60));
    for number in 0..1_100 {
        drop(reserve(&limiter, &user(&format!("other-{number}"), 1)));
    }
    assert!(now_or_never(limiter.check(&user("a", 100))).unwrap().is_allowed());
    assert_eq!((settle(other), left(&limiter, "tokens", "a")), (0, 0));
}

/// Estimates ignored exceptions: a blocked key could reserve.
#[test]
fn exceptions_hold_for_estimates_too() {
    each_store(|name, new, clock| {
        let limiter = limiter(new, clock, vec![rule("tokens", "100/day")]);
        let except = |kind| {
            let (key, since) = ("a", clock.now());
            let exception = Exception { since, ..Exception::new("*", key, kind) };
            now_or_never(limiter.except(exception)).unwrap();
        };
        except(ExceptionKind::Block);
        let (verdict, reservation) = reserve(&limiter, &user("a", 60));
        assert!(!verdict.is_allowed() && reservation.is_empty(), "{name}");
        except(ExceptionKind::Allow);
        let (verdict, reservation) = reserve(&limiter, &user("a", 60));
        assert!(verdict.is_allowed(), "{name}");
        now_or_never(reservation.settle(1_000)).unwrap();
        now_or_never(limiter.lift(None, "a")).unwrap();
        assert_eq!(left(&limiter, "tokens", "a"), 100, "{name}: not charged");
    });
}
