//! Tests of the auditor: it accepts exact runs, and notices one request too many, too early, or missing.

use super::*;

const BUCKET: Law = Law::Bucket { burst: 5, rate: Rate { count: 3, period_us: 1_000 } };
const FIXED: Law = Law::FixedWindow(Rate { count: 4, period_us: 1_000 });
const SLIDING: Law = Law::SlidingLog(Rate { count: 4, period_us: 1_000 });
const BEGIN: u64 = 1_700_000_000_000_000;

fn at(us: u64, cost: u32, admitted: bool) -> Request {
    Request { asked_us: BEGIN + us, answered_us: BEGIN + us, cost, admitted }
}

/// An exact limiter, written from the definition of each limit: its answers to requests at these moments.
fn exact_run(law: Law, requests: impl Iterator<Item = (u64, u32)>) -> Vec<Request> {
    let mut answered: Vec<Request> = Vec::new();
    for (us, cost) in requests {
        let spent = |from: u64| -> u64 {
            let counted = answered.iter().filter(|one| one.admitted && one.asked_us >= from);
            counted.map(|one| u64::from(one.cost)).sum::<u64>() + u64::from(cost)
        };
        let now = BEGIN + us;
        let admitted = match law {
            Law::Bucket { burst, rate } => {
                answered.iter().filter(|one| one.admitted).chain([&at(us, 0, true)]).all(|one| {
                    spent(one.asked_us) * rate.period_us <= burst * rate.period_us + rate.count * (now - one.asked_us)
                })
            }
            Law::FixedWindow(rate) => spent(now / rate.period_us * rate.period_us) <= rate.count,
            Law::SlidingLog(rate) => spent(now - rate.period_us + 1) <= rate.count,
        };
        answered.push(at(us, cost, admitted));
    }
    answered
}

fn hammer() -> impl Iterator<Item = (u64, u32)> {
    (0..600).map(|i| (i * 17, 1 + (i as u32 % 7) / 3))
}

#[test]
fn an_exact_run_is_lawful_and_leaves_no_doubt() {
    for law in [BUCKET, FIXED, SLIDING] {
        let run = exact_run(law, (0..600).map(|i| (i * 17, 1)));
        let report = law.audit(&run, 0).unwrap_or_else(|violation| panic!("{law:?}: {violation}"));
        assert_eq!((report.unseen_excess, report.unseen_loss), (0, Some(0)), "{law:?}");
        let run = exact_run(law, hammer());
        law.audit(&run, 0).unwrap_or_else(|violation| panic!("{law:?} with costs: {violation}"));
    }
}

#[test]
fn one_more_is_noticed_wherever_it_is() {
    for law in [BUCKET, FIXED, SLIDING] {
        let run = exact_run(law, hammer());
        for index in (0..run.len()).filter(|index| !run[*index].admitted) {
            let mut wrong = run.clone();
            wrong[index].admitted = true;
            assert!(matches!(law.audit(&wrong, 0), Err(Violation::Excess { .. })), "{law:?}, request {index}");
        }
    }
}

#[test]
fn one_denied_needlessly_is_noticed_wherever_it_is() {
    for law in [BUCKET, FIXED, SLIDING] {
        let run = exact_run(law, hammer());
        for index in (0..run.len()).filter(|index| run[*index].admitted) {
            let mut wrong = run.clone();
            wrong[index].admitted = false;
            assert_eq!(law.audit(&wrong, 0), Err(Violation::NeedlessDenial(wrong[index])), "{law:?}, request {index}");
        }
    }
}

/// A token that was charged and never granted shows in the next denial that it causes.
#[test]
fn a_lost_token_is_noticed_unless_it_is_accounted_for() {
    for law in [BUCKET, FIXED, SLIDING] {
        let mut run = exact_run(law, (0..600).map(|i| (i * 17, 1)));
        run.remove(2);
        assert!(matches!(law.audit(&run, 0), Err(Violation::NeedlessDenial(_))), "{law:?}");
        law.audit(&run, 1).unwrap_or_else(|violation| panic!("{law:?}: {violation}"));
    }
}

#[test]
fn one_microsecond_early_is_noticed() {
    // Three in 1,000 us: the sixth may come after 333 1/3 us, and not after 333.
    let burst = (0..5).map(|_| at(0, 1, true));
    let with = |us| burst.clone().chain([at(us, 1, true)]).collect::<Vec<_>>();
    assert!(BUCKET.audit(&with(334), 0).is_ok());
    let early = Violation::Excess { from_us: BEGIN, until_us: BEGIN + 333, excess: 1 };
    assert_eq!(BUCKET.audit(&with(333), 0), Err(early));

    let full = (0..4).map(|_| at(0, 1, true));
    let with = |us| full.clone().chain([at(us, 1, true)]).collect::<Vec<_>>();
    for law in [FIXED, SLIDING] {
        assert!(law.audit(&with(1_000), 0).is_ok());
        let early = Violation::Excess { from_us: BEGIN, until_us: BEGIN + 999, excess: 1 };
        assert_eq!(law.audit(&with(999), 0), Err(early));
    }
}

#[test]
fn one_microsecond_late_is_noticed() {
    let burst = (0..5).map(|_| at(0, 1, true));
    let with = |us| burst.clone().chain([at(us, 1, false)]).collect::<Vec<_>>();
    assert!(BUCKET.audit(&with(333), 0).is_ok());
    assert_eq!(BUCKET.audit(&with(334), 0), Err(Violation::NeedlessDenial(at(334, 1, false))));

    let full = (0..4).map(|_| at(0, 1, true));
    let with = |us| full.clone().chain([at(us, 1, false)]).collect::<Vec<_>>();
    for law in [FIXED, SLIDING] {
        assert!(law.audit(&with(999), 0).is_ok());
        assert_eq!(law.audit(&with(1_000), 0), Err(Violation::NeedlessDenial(at(1_000, 1, false))));
    }
}

/// Whatever the delays before and after the decision, an exact run is never called a violation.
#[test]
fn not_knowing_the_moment_raises_no_false_alarm() {
    let mut chance = 88_172_645_463_325_252_u64;
    let mut up_to = |limit: u64| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance % limit
    };
    for round in 0..200 {
        for law in [BUCKET, FIXED, SLIDING] {
            let longest = 1 + up_to(2_500);
            let mut moment = 0;
            let moments: Vec<_> = (0..200)
                .map(|_| {
                    moment += up_to(60);
                    (moment, 1 + up_to(3) as u32)
                })
                .collect();
            let mut run = exact_run(law, moments.into_iter());
            for request in &mut run {
                request.asked_us -= up_to(longest);
                request.answered_us += up_to(longest);
            }
            law.audit(&run, 0).unwrap_or_else(|violation| panic!("round {round}, {law:?}: {violation}"));
        }
    }
}

/// The sweep is an optimization, so it is compared with a check of every interval.
#[test]
fn the_sweep_sees_what_a_look_at_every_interval_sees() {
    let mut run = exact_run(BUCKET, hammer());
    run.retain(|request| request.admitted);
    for (index, request) in run.iter_mut().enumerate() {
        request.asked_us -= (index as u64 * 7_919) % 400;
        request.answered_us += (index as u64 * 104_729) % 300;
    }
    let (burst, rate) = (5, Rate { count: 3, period_us: 1_000 });
    let mut highest = 0;
    for from_us in run.iter().map(|request| request.asked_us) {
        for until_us in run.iter().map(|request| request.answered_us).filter(|until| *until >= from_us) {
            let inside = run.iter().filter(|one| one.asked_us >= from_us && one.answered_us <= until_us);
            let cost: i128 = inside.map(|one| i128::from(one.cost)).sum();
            highest = highest.max(cost * 1_000 - 3 * i128::from(until_us - from_us));
        }
    }
    let unseen = bucket::admissions(&Answers::new(&run), burst, rate).expect("lawful");
    assert_eq!(i128::from(unseen), (5_000 - highest) / 1_000);
}

#[test]
fn only_windows_that_surely_hold_a_denial_are_called_exhausted() {
    let rate = Rate { count: 4, period_us: 1_000 };
    let straddling = Request { asked_us: BEGIN + 1_999, ..at(2_000, 1, false) };
    assert_eq!(exhausted_windows(&[at(0, 1, false), at(999, 1, false), at(3_000, 1, true), straddling], rate), 1);
}

/// A measurement: `cargo test --release --features redis --test quiet ten_million -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, meant for an optimised build"]
fn ten_million_requests_are_audited_in_seconds() {
    let law = Law::Bucket { burst: 1_000_000, rate: Rate { count: 1_000_000, period_us: 1_000_000 } };
    let caller = |caller: u64| {
        let request = move |i: u64| {
            let asked_us = BEGIN + i * 24 + caller;
            Request { asked_us, answered_us: asked_us + 24, cost: 1, admitted: true }
        };
        (0..10_000_000 / 24).map(request)
    };
    let mut run: Vec<Request> = (0..24).flat_map(caller).collect();
    run.push(Request { asked_us: BEGIN, answered_us: BEGIN + 20_000_000, cost: 1, admitted: true });
    let started = std::time::Instant::now();
    let report = law.audit(&run, 0).expect("lawful");
    println!("{} requests in {:?}: {report:?}", run.len(), started.elapsed());
}
