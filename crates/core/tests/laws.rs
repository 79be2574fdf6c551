//! Laws that hold for every algorithm, whatever the numbers and however the client behaves.
//!
//! The auditor here reads only what was admitted when; it knows the definitions, not the code.

use proptest::prelude::*;
use tollkeeper_core::{
    Algorithm, Calendar, CalendarUnit, Change, Charge, Descriptor, Enforcement, Policy, Quota, RuleSpec, Scalar, Span,
    State, Timestamp, decide, decide_all,
};

const START: u64 = 1_700_000_000_000_000;

/// One thing a client does: wait, then ask.
#[derive(Clone, Copy, Debug)]
struct Ask {
    wait: Wait,
    cost: Cost,
    /// Whether state that no longer matters is dropped first, as a store may do.
    drop_idle: bool,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    None,
    Micros(u64),
    /// A share of the period, in thousandths.
    Share(u64),
    /// As long as the last denial's `retry_after`, or one microsecond less.
    RetryAfter,
    AlmostRetryAfter,
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    Units(u32),
    /// A share of the limit, in thousandths; above 1000 it can never pass.
    Share(u64),
}

fn asks(most: usize) -> impl Strategy<Value = Vec<Ask>> {
    let wait = prop_oneof![
        3 => Just(Wait::None),
        2 => (0u64..2_000_000).prop_map(Wait::Micros),
        3 => (0u64..2_500).prop_map(Wait::Share),
        2 => Just(Wait::RetryAfter),
        2 => Just(Wait::AlmostRetryAfter),
    ];
    let cost = prop_oneof![4 => (0u32..4).prop_map(Cost::Units), 2 => (0u64..1_100).prop_map(Cost::Share)];
    let ask = (wait, cost, any::<bool>()).prop_map(|(wait, cost, drop_idle)| Ask { wait, cost, drop_idle });
    prop::collection::vec(ask, 1..most)
}

fn quotas() -> impl Strategy<Value = Quota> {
    prop_oneof![6 => periodic_quotas(), 1 => calendar_quotas()]
}

/// Windows of different lengths, in zones whose clocks change, from days that some months do not have.
pub(crate) fn calendars() -> impl Strategy<Value = Calendar> {
    let units =
        prop::sample::select(vec![CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year]);
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kathmandu",
        "Africa/Cairo",
        "America/Havana",
        "Pacific/Apia",
    ];
    (units, prop::sample::select(zones.to_vec()), 1u32..=31).prop_map(|(unit, zone, day)| {
        let calendar = Calendar::new(unit).timezone(zone).unwrap();
        // A day that this unit does not have.
        calendar.anchor_day(day).unwrap_or(calendar)
    })
}

fn calendar_quotas() -> impl Strategy<Value = Quota> {
    // Forty years would pass the last timestamp (2112) within one run.
    let calendars = calendars().prop_filter("too long", |calendar| calendar.unit() != CalendarUnit::Year);
    (1u32..20, calendars).prop_map(|(count, calendar)| Quota::per_calendar(count, calendar).build().unwrap())
}

fn periodic_quotas() -> impl Strategy<Value = Quota> {
    let counts = prop_oneof![1u32..20, Just(3), Just(7_919), 1u32..100_000];
    let periods =
        prop_oneof![Just(1_000_000u64), Just(60_000_000), Just(86_400_000_000), 1_000u64..10_000_000, Just(90_000_000)];
    let bursts = prop_oneof![1u32..10, 1u32..100_000];
    (counts, periods, bursts, prop::sample::select(Algorithm::ALL.to_vec())).prop_filter_map(
        "too large to count exactly",
        |(count, period, burst, algorithm)| {
            let quota = Quota::per(count, Span::from_micros(period)).burst(burst).algorithm(algorithm).build().ok()?;
            // Refills of many months would pass the last timestamp (2112) within one run.
            (quota.full_refill() <= Span::from_secs(120 * 86_400)).then_some(quota)
        },
    )
}

impl Cost {
    fn of(self, quota: &Quota) -> u32 {
        match self {
            Cost::Units(units) => units,
            Cost::Share(share) => (u64::from(quota.limit()) * share / 1_000) as u32,
        }
    }
}

impl Wait {
    fn of(self, quota: &Quota, wait_us: u64) -> u64 {
        match self {
            Wait::None => 0,
            Wait::Micros(micros) => micros,
            Wait::Share(share) => (u128::from(quota.period().as_micros()) * u128::from(share) / 1_000) as u64,
            Wait::RetryAfter => wait_us,
            Wait::AlmostRetryAfter => wait_us.saturating_sub(1),
        }
    }
}

/// Runs a client and returns the admitted costs and their times.
fn run(quota: &Quota, asks: &[Ask]) -> Vec<(u64, u32)> {
    let (mut state, mut now, mut wait_us) = (State::Fresh, START, 0);
    let mut admitted = Vec::new();
    for ask in asks {
        now += ask.wait.of(quota, wait_us);
        let at = Timestamp::from_micros(now);
        if ask.drop_idle && state.until(quota) <= at {
            state = State::Fresh;
        }
        let cost = ask.cost.of(quota);
        let (decision, change) = decide(quota, cost, &state, at);
        state.apply(change);
        if decision.is_allowed() {
            admitted.push((now, cost));
        }
        wait_us = decision.retry_after().map_or(0, Span::as_micros);
    }
    admitted
}

/// The definition of each limit, applied to what was admitted.
fn audit(quota: &Quota, admitted: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let window = quota.period().as_micros();
    let limit = u128::from(quota.limit());
    let sum = |from: usize, to: usize| admitted[from..=to].iter().map(|(_, cost)| u128::from(*cost)).sum::<u128>();
    for to in 0..admitted.len() {
        for from in 0..=to {
            let (first, last) = (admitted[from].0, admitted[to].0);
            match quota.algorithm() {
                Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
                    // admitted <= burst + count / period * elapsed, multiplied out
                    let allowance = limit * u128::from(window) + u128::from(quota.count()) * u128::from(last - first);
                    prop_assert!(sum(from, to) * u128::from(window) <= allowance, "{admitted:?} from {from} to {to}");
                }
                Algorithm::FixedWindow if quota.calendar().is_some() => {
                    let window_of = |at| quota.calendar().unwrap().window(Timestamp::from_micros(at));
                    let is_one = window_of(first) == window_of(last);
                    prop_assert!(!is_one || sum(from, to) <= limit, "{admitted:?} from {from} to {to}");
                }
                Algorithm::FixedWindow if first / window == last / window => {
                    prop_assert!(sum(from, to) <= limit, "{admitted:?} from {from} to {to}");
                }
                Algorithm::SlidingWindowLog | Algorithm::Concurrency if last - first < window => {
                    prop_assert!(sum(from, to) <= limit, "{admitted:?} from {from} to {to}");
                }
                _ => {}
            }
        }
        if quota.algorithm() == Algorithm::SlidingWindowCounter {
            let now = admitted[to].0;
            let in_window = |index: u64| {
                let costs = admitted[..=to].iter().filter(|(at, _)| at / window == index);
                costs.map(|(_, cost)| u128::from(*cost)).sum::<u128>()
            };
            let fading = in_window(now / window - 1) * u128::from(window - now % window);
            prop_assert!(in_window(now / window) * u128::from(window) + fading <= limit * u128::from(window));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_interval_admits_more_than_the_law(quota in quotas(), asks in asks(80)) {
        audit(&quota, &run(&quota, &asks))?;
    }

    #[test]
    fn retry_after_is_exact_to_the_microsecond(quota in quotas(), asks in asks(40)) {
        let (mut state, mut now, mut wait_us) = (State::Fresh, START, 0);
        for ask in asks {
            now += ask.wait.of(&quota, wait_us);
            let cost = ask.cost.of(&quota);
            let passes = |later: u64| decide(&quota, cost, &state, Timestamp::from_micros(now + later)).0.is_allowed();
            let (decision, change) = decide(&quota, cost, &state, Timestamp::from_micros(now));
            match decision.retry_after().map(Span::as_micros) {
                Some(0) => prop_assert!(decision.is_allowed()),
                Some(wait) => {
                    prop_assert!(passes(wait), "{quota}: the wait is {wait}, but it does not pass then");
                    prop_assert!(!passes(wait - 1), "{quota}: the wait is {wait}, but it passes earlier");
                    prop_assert!(wait <= quota.full_refill().as_micros());
                }
                None => prop_assert!(cost > quota.limit()),
            }
            wait_us = decision.retry_after().map_or(0, Span::as_micros);
            state.apply(change);
        }
    }

    #[test]
    fn denials_and_peeks_leave_no_trace(quota in quotas(), asks in asks(60)) {
        let (mut with, mut without, mut now, mut wait_us) = (State::Fresh, State::Fresh, START, 0);
        for ask in asks {
            now += ask.wait.of(&quota, wait_us);
            let (at, cost) = (Timestamp::from_micros(now), ask.cost.of(&quota));
            let (decision, change) = decide(&quota, cost, &with, at);
            with.apply(change);
            if decision.is_allowed() && cost > 0 {
                let (same, change) = decide(&quota, cost, &without, at);
                prop_assert_eq!(same, decision);
                without.apply(change);
            }
            prop_assert_eq!(&with, &without);
            wait_us = decision.retry_after().map_or(0, Span::as_micros);
        }
    }

    #[test]
    fn a_client_that_waits_for_retry_after_always_passes(quota in quotas(), costs in prop::collection::vec(0u64..=1_000, 1..40)) {
        let (mut state, mut now) = (State::Fresh, START);
        for share in costs {
            let cost = Cost::Share(share).of(&quota).max(1);
            let (decision, change) = decide(&quota, cost, &state, Timestamp::from_micros(now));
            state.apply(change);
            if !decision.is_allowed() {
                now += decision.retry_after().unwrap().as_micros();
                let (second, change) = decide(&quota, cost, &state, Timestamp::from_micros(now));
                prop_assert!(second.is_allowed());
                state.apply(change);
            }
        }
    }

    /// Also after the clock has run back.
    #[test]
    fn remaining_is_exactly_what_still_passes(quota in quotas(), asks in asks(40), back in 0u64..3_000) {
        let (mut state, mut now, mut wait_us) = (State::Fresh, START, 0);
        for ask in asks {
            now += ask.wait.of(&quota, wait_us);
            let at = Timestamp::from_micros(now);
            let (decision, change) = decide(&quota, ask.cost.of(&quota), &state, at);
            state.apply(change);
            wait_us = decision.retry_after().map_or(0, Span::as_micros);
            let behind = now - Wait::Share(back).of(&quota, 0).min(now);
            for at in [at, Timestamp::from_micros(behind)] {
                let remaining = decide(&quota, 0, &state, at).0.remaining;
                if remaining > 0 {
                    prop_assert!(decide(&quota, remaining, &state, at).0.is_allowed());
                }
                prop_assert!(!decide(&quota, remaining + 1, &state, at).0.is_allowed());
            }
            prop_assert_eq!(decision.remaining, decide(&quota, 0, &state, at).0.remaining);
        }
    }

    #[test]
    fn after_reset_the_state_is_as_if_never_used(quota in quotas(), asks in asks(40), later in 0u64..100_000_000) {
        let (mut state, mut now, mut wait_us) = (State::Fresh, START, 0);
        for ask in asks {
            now += ask.wait.of(&quota, wait_us);
            let (decision, change) = decide(&quota, ask.cost.of(&quota), &state, Timestamp::from_micros(now));
            state.apply(change);
            wait_us = decision.retry_after().map_or(0, Span::as_micros);
            let reset = Timestamp::from_micros(now + decision.reset_after.as_micros());
            prop_assert!(state == State::Fresh || state.until(&quota) <= reset);
            let then = Timestamp::from_micros(reset.as_micros() + later);
            for cost in [0, 1, quota.limit()] {
                prop_assert_eq!(decide(&quota, cost, &state, then).0, decide(&quota, cost, &State::Fresh, then).0);
            }
            if decision.reset_after > Span::ZERO {
                let just_before = Timestamp::from_micros(reset.as_micros() - 1);
                prop_assert!(decide(&quota, 0, &state, just_before).0.reset_after > Span::ZERO);
            }
        }
    }

    /// A clock that shows an earlier time admits nothing that it would not have admitted later.
    #[test]
    fn time_that_runs_backwards_mints_nothing(quota in quotas(), asks in asks(40), back in 1u64..200_000_000_000) {
        let (mut state, mut now, mut wait_us) = (State::Fresh, START, 0);
        for ask in asks {
            now += ask.wait.of(&quota, wait_us);
            let at = Timestamp::from_micros(now);
            let (decision, change) = decide(&quota, ask.cost.of(&quota), &state, at);
            state.apply(change);
            wait_us = decision.retry_after().map_or(0, Span::as_micros);
            let earlier = Timestamp::from_micros(now - back);
            for cost in [1, 2, quota.limit()] {
                if decide(&quota, cost, &state, earlier).0.is_allowed() {
                    prop_assert!(decide(&quota, cost, &state, at).0.is_allowed());
                }
            }
            prop_assert!(decide(&quota, 0, &state, earlier).0.remaining <= decide(&quota, 0, &state, at).0.remaining);
        }
    }

    /// A clock that swings back and forth within a window never adds to what the largest interval allows.
    #[test]
    fn a_swinging_clock_mints_nothing(quota in quotas(), swings in prop::collection::vec((0u64..1_000, 0u32..3), 1..60)) {
        let (mut state, mut admitted) = (State::Fresh, 0u128);
        let reach = quota.full_refill().as_micros().min(quota.period().as_micros()) / 2;
        // From the middle of a window, so that the swing stays in it.
        let period = quota.period().as_micros();
        let own = quota.window_at(Timestamp::from_micros(START));
        let middle = if quota.calendar().is_some() { own.end.as_micros() - 1 } else { START - START % period + period / 2 };
        let reach = if quota.calendar().is_some() { own.end.since(own.start).as_micros() - 1 } else { reach };
        for (share, cost) in swings {
            let now = middle - (u128::from(reach) * u128::from(share) / 1_000) as u64;
            let (decision, change) = decide(&quota, cost, &state, Timestamp::from_micros(now));
            state.apply(change);
            admitted += if decision.is_allowed() { u128::from(cost) } else { 0 };
        }
        let refilled = if quota.algorithm().has_burst() { u128::from(quota.count()) * u128::from(reach) } else { 0 };
        prop_assert!(admitted * u128::from(period) <= u128::from(quota.limit()) * u128::from(period) + refilled);
    }

    /// However far the clock jumps back, the client's wait is exact and bounded: by one refill once the clock has
    /// certainly jumped, by two while state from the near future still counts.
    #[test]
    fn a_clock_that_jumps_locks_nobody_out(quota in quotas(), asks in asks(30), far in 0u64..1_600_000_000_000_000, share in 0u64..3_000, near in any::<bool>()) {
        let (mut state, mut now, mut wait_us, mut charged_at) = (State::Fresh, START, 0, START);
        for ask in asks {
            now += ask.wait.of(&quota, wait_us);
            let (decision, change) = decide(&quota, ask.cost.of(&quota), &state, Timestamp::from_micros(now));
            charged_at = if change == Change::None { charged_at } else { now };
            state.apply(change);
            wait_us = decision.retry_after().map_or(0, Span::as_micros);
        }
        let refill = quota.full_refill().as_micros();
        let back = if near { (u128::from(refill) * u128::from(share) / 1_000) as u64 } else { far };
        let jumped = now.saturating_sub(back);
        // The state knows when it was last charged, not what the clock has shown since.
        let back = charged_at.saturating_sub(jumped);
        for cost in [1, quota.limit()] {
            let mut state = state.clone();
            let (decision, change) = decide(&quota, cost, &state, Timestamp::from_micros(jumped));
            state.apply(change);
            if let Some(wait) = decision.retry_after().map(Span::as_micros).filter(|wait| *wait > 0) {
                let bound = if back >= 2 * refill { refill } else { refill + back.min(refill) };
                prop_assert!(wait <= bound, "{quota}: the wait is {wait} after a jump of {back}");
                prop_assert!(decide(&quota, cost, &state, Timestamp::from_micros(jumped + wait)).0.is_allowed());
                prop_assert!(!decide(&quota, cost, &state, Timestamp::from_micros(jumped + wait - 1)).0.is_allowed());
            }
        }
    }

    /// Windows of a calendar follow each other without gaps and overlaps, and what is sent to a server is enough
    /// for any time in the window before, this one and the next.
    #[test]
    fn calendar_windows_follow_each_other(calendar in calendars(), at in 0u64..1 << 52) {
        let at = Timestamp::from_micros(at);
        let window = calendar.window(at);
        prop_assert!(window.start <= at && at < window.end);
        let length = window.end.since(window.start);
        prop_assert!(length <= Quota::per_calendar(1, calendar).build().unwrap().full_refill());
        for inside in [window.start, Timestamp::from_micros(window.end.as_micros() - 1)] {
            prop_assert_eq!(calendar.window(inside), window);
        }
        prop_assert_eq!(calendar.window(window.end).start, window.end);
        let starts = calendar.starts_around(at);
        prop_assert!(starts.is_sorted() && starts.contains(&window.start) && starts.contains(&window.end));
        for pair in starts.windows(2) {
            prop_assert_eq!(calendar.window(pair[0]).end, pair[1]);
        }
    }

    /// A slot that is released is free at once, and only once.
    #[test]
    fn a_released_slot_is_free_once(count in 1u32..20, taken in prop::collection::vec((1u32..4, 0u64..3), 1..20)) {
        let quota = Quota::concurrent(count, Span::SECOND).build().unwrap();
        let (mut state, mut now) = (State::Fresh, START);
        let mut holds = Vec::new();
        for (cost, wait) in taken {
            now += wait;
            let (decision, change) = decide(&quota, cost, &state, Timestamp::from_micros(now));
            state.apply(change);
            holds.extend(decision.hold.map(|hold| (hold, cost)));
        }
        let at = Timestamp::from_micros(now);
        for (hold, cost) in holds {
            let before = decide(&quota, 0, &state, at).0.remaining;
            prop_assert!(state.release(hold));
            prop_assert_eq!(decide(&quota, 0, &state, at).0.remaining, before + cost);
            prop_assert!(!state.release(hold));
        }
        prop_assert_eq!(decide(&quota, 0, &state, at).0.remaining, count);
    }
}

/// Rules of every algorithm over one key.
fn charges(limits: &[(u32, Algorithm, Enforcement)], cost: u32) -> Vec<Charge> {
    let specs = limits.iter().enumerate().map(|(index, (count, algorithm, mode))| RuleSpec {
        name: format!("rule-{index}"),
        key: "{user}".into(),
        limit: Scalar::Text(format!("{count}/s")),
        algorithm: *algorithm,
        mode: *mode,
        cost: (1 + index as u64 % 2).into(),
        ..RuleSpec::default()
    });
    Policy::new(specs).unwrap().charges(&Descriptor::new([("user", "u")]).with_cost(cost)).unwrap()
}

fn rule_sets() -> impl Strategy<Value = Vec<(u32, Algorithm, Enforcement)>> {
    let mode = prop_oneof![
        3 => Just(Enforcement::Enforce),
        1 => Just(Enforcement::Shadow),
        2 => Just(Enforcement::Quota),
    ];
    prop::collection::vec((1u32..12, prop::sample::select(Algorithm::ALL.to_vec()), mode), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// If the request passes, many rules behave like the same rules one by one; if an enforced one denies, or all quotas do,
    /// none changes.
    #[test]
    fn many_rules_are_all_or_nothing(limits in rule_sets(), asks in prop::collection::vec((0u64..700_000, 0u32..5), 1..50)) {
        let mut together = vec![State::Fresh; limits.len()];
        let mut one_by_one = together.clone();
        let mut now = START;
        for (wait, cost) in asks {
            now += wait;
            let at = Timestamp::from_micros(now);
            let charges = charges(&limits, cost);
            let decided = decide_all(&charges, &together, at);
            let allowed = |mode| {
                let of_mode = charges.iter().zip(&decided).filter(move |(charge, _)| charge.rule.mode() == mode);
                of_mode.map(|(_, (decision, _))| decision.is_allowed()).collect::<Vec<bool>>()
            };
            let quotas = allowed(Enforcement::Quota);
            let denied = allowed(Enforcement::Enforce).contains(&false)
                || (!quotas.is_empty() && !quotas.contains(&true));
            for (index, (decision, change)) in decided.into_iter().enumerate() {
                let (alone, its_change) = decide(charges[index].rule.quota(), charges[index].cost, &one_by_one[index], at);
                prop_assert_eq!(decision.outcome, alone.outcome);
                together[index].apply(change);
                if !denied {
                    prop_assert_eq!(decision, alone);
                    one_by_one[index].apply(its_change);
                }
                let (peek, _) = decide(charges[index].rule.quota(), 0, &together[index], at);
                prop_assert_eq!((decision.remaining, decision.reset_after), (peek.remaining, peek.reset_after));
            }
            prop_assert_eq!(&together, &one_by_one);
        }
    }
}

/// Rates that do not divide a microsecond: over a million decisions of a client that always asks as soon as it may,
/// the k-th admission comes at the exact rational time, rounded up to a microsecond once and never twice.
#[test]
fn a_million_decisions_do_not_drift() {
    for (count, period) in [(3, 1), (7_919, 1), (1, 86_400), (1_000_003, 3_600)] {
        let period = Span::from_secs(period);
        for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
            let quota = Quota::per(count, period).burst(5).algorithm(algorithm).build().unwrap();
            // From the epoch on: timestamps end in 2112, which is 40,000 waits at one a day.
            let (mut state, mut now) = (State::Fresh, 0u64);
            let (mut decisions, mut admitted) = (0, 0u128);
            let most = if count == 1 { 40_000 } else { 1_000_000 };
            while decisions < most {
                let (decision, change) = decide(&quota, 1, &state, Timestamp::from_micros(now));
                state.apply(change);
                decisions += 1;
                match decision.retry_after().unwrap().as_micros() {
                    0 => {
                        admitted += 1;
                        // The k-th passes when k - burst tokens have been refilled.
                        let refilled = admitted.saturating_sub(5) * u128::from(period.as_micros());
                        assert_eq!(u128::from(now), refilled.div_ceil(u128::from(count)), "{quota}, number {admitted}");
                    }
                    wait => now += wait,
                }
            }
            let exact = 5 + u128::from(count) * u128::from(now) / u128::from(period.as_micros());
            assert!(admitted == exact || admitted + 1 == exact, "{quota}: {admitted} of {exact}");
        }
    }
}

/// A client that asks at odd times without waiting: over a million decisions, also at one a day, it is admitted exactly
/// as often as an account in whole fractions of a token says.
#[test]
fn a_million_impatient_decisions_are_counted_exactly() {
    for (count, period, every) in [
        (3, 1_000_000, 123_457),
        (7_919, 1_000_000, 61),
        (1, 86_400_000_000, 3_600_000_001),
        (1_234_567, 86_400_000_000, 34_567),
    ] {
        for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
            let quota = Quota::per(count, Span::from_micros(period)).burst(5).algorithm(algorithm).build().unwrap();
            let (mut state, mut admitted) = (State::Fresh, 0);
            // One token is `period` of these, and a microsecond refills `count`.
            let full = 5 * u128::from(period);
            let (mut account, mut expected) = (full, 0);
            for step in 0..1_000_000u64 {
                let (decision, change) = decide(&quota, 1, &state, Timestamp::from_micros(step * every));
                state.apply(change);
                admitted += u32::from(decision.is_allowed());
                account = (account + if step == 0 { 0 } else { u128::from(count) * u128::from(every) }).min(full);
                if account >= u128::from(period) {
                    account -= u128::from(period);
                    expected += 1;
                }
                assert_eq!(admitted, expected, "{quota}, step {step}");
            }
        }
    }
}
