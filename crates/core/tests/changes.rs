//! What holds when a rule's numbers change while its buckets live. An independent account of tokens, kept in
//! fractions, says what may pass.

use proptest::prelude::*;
use tollkeeper_core::{Algorithm, Change, Quota, Span, State, Timestamp, decide};

const START: u64 = 1_700_000_000_000_000;

fn quotas() -> impl Strategy<Value = Quota> {
    let counts = prop_oneof![1u32..20, Just(3), Just(7_919), Just(1_000_000), 1u32..2_000];
    let periods = prop_oneof![Just(1_000_000u64), Just(86_400_000_000), 1_000u64..10_000_000];
    (counts, periods, 1u32..60)
        .prop_map(|(count, period, burst)| Quota::per(count, Span::from_micros(period)).burst(burst).build().unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Charge(u32),
    Change(Box<Quota>),
    /// Back to what it was before the last change.
    Back,
}

/// A wait in thousandths of a refill, and what happens then.
fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let wait = prop_oneof![3 => Just(0u64), 3 => 0u64..30, 2 => 0u64..500, 1 => 0u64..1_500];
    let step = prop_oneof![4 => (1u32..20).prop_map(Step::Charge), 1 => quotas().prop_map(|quota| Step::Change(Box::new(quota))), 1 => Just(Step::Back)];
    prop::collection::vec((wait, step), 1..60)
}

/// One token. Exact fractions would need ever larger denominators, so the account counts in these units and rounds
/// refills up: it never has less left than there is.
const TOKEN: i128 = 1 << 60;

#[derive(Clone, Copy, Debug)]
struct Account {
    missing: i128,
    at: u64,
}

impl Account {
    fn advance(&mut self, quota: &Quota, now: u64) {
        let refilled = i128::from(now - self.at) * i128::from(quota.count()) * (TOKEN >> 20);
        let refilled = (refilled / i128::from(quota.period().as_micros()) + 1) << 20;
        let is_later = now > self.at;
        *self = Account { missing: (self.missing - if is_later { refilled } else { 0 }).max(0), at: now };
    }

    fn left(&self, quota: &Quota) -> i128 {
        i128::from(quota.limit()) * TOKEN - self.missing
    }

    fn change(&mut self, to: &Quota) {
        self.missing = self.missing.min(i128::from(to.limit()) * TOKEN);
    }
}

/// What a microsecond is worth: the most that a conversion may round against the client.
fn microsecond(quota: &Quota) -> i128 {
    i128::from(quota.count()) * TOKEN / i128::from(quota.period().as_micros()) + (2 << 20)
}

fn decided(quota: &Quota, cost: u32, state: &State, now: u64) -> (bool, Option<u64>, u32) {
    let (decision, _) = decide(quota, cost, state, Timestamp::from_micros(now));
    (decision.is_allowed(), decision.retry_after().map(Span::as_micros), decision.remaining)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Never more than the account allows, and never noticeably less.
    #[test]
    fn missing_tokens_stay_missing(first in quotas(), steps in steps()) {
        let (mut quota, mut state, mut now) = (first, State::Fresh, START);
        let mut account = Account { missing: 0, at: START };
        // The rounding of conversions, and of the account itself.
        let mut rounded = 0;
        // After more changes than are remembered, a bucket is only guaranteed not to admit too much.
        let mut changes_since_write = 0;
        let mut before = first;
        for (wait, step) in steps {
            now += (u128::from(quota.full_refill().as_micros()) * u128::from(wait) / 1_000) as u64;
            account.advance(&quota, now);
            rounded += 2 << 20;
            let at = Timestamp::from_micros(now);
            let step = if let Step::Back = step { Step::Change(Box::new(before)) } else { step };
            match step {
                Step::Back => unreachable!("it is a change"),
                Step::Change(to) => {
                    rounded += microsecond(&to);
                    before = Quota::per(quota.count(), quota.period()).burst(quota.limit()).build().unwrap();
                    quota = to.in_place_of(&quota, at);
                    account.change(&quota);
                    changes_since_write += 1;
                }
                Step::Charge(cost) => {
                    let (decision, change) = decide(&quota, cost, &state, at);
                    if changes_since_write > 4 {
                        // From here on the account follows what was found.
                        let remaining = decide(&quota, 0, &state, at).0.remaining + 1;
                        account.missing = i128::from(quota.limit().saturating_sub(remaining)) * TOKEN;
                        rounded += TOKEN;
                    }
                    let (asked, left) = (i128::from(cost) * TOKEN, account.left(&quota));
                    if decision.is_allowed() {
                        prop_assert!(asked <= left, "{cost} passed, {left} were left: {quota}");
                        account.missing += asked;
                    } else if cost <= quota.limit() {
                        prop_assert!(asked > left - rounded, "{cost} denied of {left}: {quota}");
                    }
                    if change != Change::None {
                        changes_since_write = 0;
                    }
                    state.apply(change);
                }
            }
        }
    }

    /// A wait given after a change is exact, like any other.
    #[test]
    fn waits_stay_exact(before in quotas(), after in quotas(), spent in 1u32..60, wait in 0u64..1_000, cost in 1u32..60) {
        let mut state = State::Fresh;
        state.apply(decide(&before, spent.min(before.limit()), &state, Timestamp::from_micros(START)).1);
        let changed_at = START + before.full_refill().as_micros() * wait / 1_000;
        let after = after.in_place_of(&before, Timestamp::from_micros(changed_at));
        if let (false, Some(wait), _) = decided(&after, cost, &state, changed_at) {
            prop_assert!(!decided(&after, cost, &state, changed_at + wait - 1).0);
            prop_assert!(decided(&after, cost, &state, changed_at + wait).0);
            prop_assert!(wait <= after.full_refill().as_micros());
            // Stored or not, it is the same bucket.
            let change = decide(&after, cost, &state, Timestamp::from_micros(changed_at)).1;
            state.apply(change);
            prop_assert_eq!(decided(&after, cost, &state, changed_at).1, Some(wait));
        }
    }

    /// If any number is raised, no client waits longer; if any is lowered, no client has more left.
    #[test]
    fn raising_helps_and_lowering_gives_nothing(
        low in quotas(), faster in 1u32..50, more in 0u32..200, spent in 1u32..60, later in 0u64..1_200, cost in 1u32..60,
    ) {
        let high = Quota::per(low.count() * faster, low.period()).burst(low.limit() + more).build().unwrap();
        let at = Timestamp::from_micros(START);
        for (from, to) in [(low, high), (high, low)] {
            let mut state = State::Fresh;
            state.apply(decide(&from, spent.min(from.limit()), &state, at).1);
            let changed_at = Timestamp::from_micros(START + from.full_refill().as_micros() * later / 1_000);
            let to = to.in_place_of(&from, changed_at);
            let (before, after) = (decide(&from, cost, &state, changed_at).0, decide(&to, cost, &state, changed_at).0);
            let (left_before, left_after) = (decide(&from, 0, &state, changed_at).0, decide(&to, 0, &state, changed_at).0);
            if from == low {
                let wait = |wait: Option<Span>| wait.map_or(u64::MAX, Span::as_micros);
                prop_assert!(wait(after.retry_after()) <= wait(before.retry_after()), "{from} -> {to}");
                prop_assert!(left_after.remaining >= left_before.remaining);
            } else {
                prop_assert!(left_after.remaining <= left_before.remaining, "{from} -> {to}");
                prop_assert!(before.is_allowed() || !after.is_allowed());
            }
        }
    }
}

fn emptied(quota: &Quota) -> State {
    let mut state = State::Fresh;
    state.apply(decide(quota, quota.limit(), &state, Timestamp::from_micros(START)).1);
    state
}

/// A limit of 10/s with burst 50 was used up, then raised to 100/s with burst 500. The debt was five seconds, which
/// was read as five hundred tokens, so clients who had bought the larger plan still waited.
#[test]
fn a_raised_plan_lets_the_waiting_client_pass_now() {
    let (small, large) =
        (Quota::per_second(10).burst(50).build().unwrap(), Quota::per_second(100).burst(500).build().unwrap());
    let state = emptied(&small);
    assert!(!decided(&small, 1, &state, START).0);
    let large = large.in_place_of(&small, Timestamp::from_micros(START));
    assert_eq!(decided(&large, 1, &state, START), (true, Some(0), 449));
}

#[test]
fn a_lowered_plan_gives_no_fresh_burst_and_no_endless_wait() {
    let (large, small) =
        (Quota::per_second(100).burst(500).build().unwrap(), Quota::per_minute(1).burst(50).build().unwrap());
    let state = emptied(&large);
    let known = small.in_place_of(&large, Timestamp::from_micros(START));
    for seconds in [0, 1, 4, 6, 59] {
        assert!(!decided(&known, 1, &state, START + seconds * 1_000_000).0, "after {seconds} s");
    }
    assert!(decided(&known, 1, &state, START + 60_000_000).0);
    // After a restart the former numbers are unknown: five seconds stay five seconds.
    assert_eq!(decided(&small, 0, &state, START).2, 49);
}

/// A bucket of an unknown pace that owes more than the new one can is empty as of now, and the denial writes that to
/// the store: otherwise each look would start the wait again.
#[test]
fn an_unknown_debt_is_at_most_a_whole_bucket() {
    let (slow, fast) = (Quota::per_day(1).build().unwrap(), Quota::per_second(10).burst(5).build().unwrap());
    let mut state = emptied(&slow);
    let (decision, change) = decide(&fast, 1, &state, Timestamp::from_micros(START));
    assert_eq!(decision.retry_after().unwrap().as_micros(), 100_000);
    state.apply(change);
    assert!(decided(&fast, 1, &state, START + 100_000).0);
}

/// Windows and logs count costs, so a changed N applies at once.
#[test]
fn windows_and_logs_follow_a_changed_count() {
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::Concurrency]
    {
        let quota = |count: u32| Quota::per(count, Span::from_secs(60)).algorithm(algorithm).build().unwrap();
        let (ten, twenty, five) = (quota(10), quota(20), quota(5));
        let state = emptied(&ten);
        let at = Timestamp::from_micros(START);
        assert!(!decided(&ten, 1, &state, START).0, "{algorithm}");
        assert_eq!(decided(&twenty.in_place_of(&ten, at), 1, &state, START), (true, Some(0), 9), "{algorithm}");
        assert!(!decided(&five.in_place_of(&ten, at), 1, &state, START).0, "{algorithm}");
        let mut half = State::Fresh;
        half.apply(decide(&ten, 3, &half, at).1);
        assert_eq!(decided(&five.in_place_of(&ten, at), 1, &half, START), (true, Some(0), 1), "{algorithm}");
    }
}
