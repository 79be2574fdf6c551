//! Runs each hot path of the library many times: `./run budget` counts the instructions under valgrind, which are the same however busy the
//! machine is. Named as an argument, only that path runs. Prints how often each ran, and its name.

use std::hint::black_box;

use tollkeeper::{
    Descriptor, HeaderStyle, Keyed, Limiter, MemoryStore, Policy, Quota, RuleSpec, Timestamp, keyed, limit_headers,
};

const TIMES: u32 = 2_000;

fn main() {
    let limiter = plenty();
    limiter.check("42");
    measured("keyed, allowed", TIMES, |_| _ = black_box(limiter.check(black_box("42"))));

    let limiter = keyed(Quota::per_day(1)).expect("a valid quota").with_max_keys(10_000);
    limiter.check("42");
    measured("keyed, denied", TIMES, |_| _ = black_box(limiter.check(black_box("42"))));

    let limiter = plenty();
    measured("keyed, new key", TIMES, |key| _ = black_box(limiter.check(&key)));

    let (limiter, mut decisions) = (plenty(), Vec::with_capacity(16));
    let keys: Vec<String> = (0..16).map(|key| format!("user-{key:07}")).collect();
    limiter.check_many_into(&keys, &mut decisions);
    measured("keyed, batch of 16", TIMES / 16, |_| {
        decisions.clear();
        limiter.check_many_into(black_box(&keys), &mut decisions);
        black_box(&decisions);
    });

    let request = Descriptor::new([("user", "42"), ("plan", "free")]);
    for (name, keys) in [("one rule", ["{user}"].as_slice()), ("three rules", &["{user}", "{plan}", "global"])] {
        let limiter = rules(keys, "1000000/s");
        let _ = limiter.try_check(&request);
        measured(name, TIMES, |_| _ = black_box(limiter.try_check(black_box(&request))));
    }

    let limiter = rules(&["{user}", "{plan}", "global"], "1/day");
    let _ = limiter.try_check(&request);
    measured("three rules, denied", TIMES, |_| _ = black_box(limiter.try_check(black_box(&request))));

    let verdict = rules(&["{user}", "{plan}", "global"], "1000000/s").try_check(&request).expect("decided");
    let now = Timestamp::from_micros(1_767_225_600_000_000);
    measured("limit headers of three rules", TIMES, |_| {
        black_box(limit_headers(HeaderStyle::Draft11, black_box(&verdict), now));
    });
}

fn plenty() -> Keyed {
    keyed(Quota::per_second(1_000_000).burst(1_000_000)).expect("a valid quota").with_max_keys(10_000)
}

fn rules(keys: &[&str], limit: &str) -> Limiter {
    let rule = |key: &&str| RuleSpec {
        name: format!("by-{}", key.trim_matches(['{', '}'])),
        key: (*key).into(),
        limit: limit.into(),
        ..RuleSpec::default()
    };
    Limiter::new(Policy::new(keys.iter().map(rule)).expect("valid rules"), MemoryStore::new())
}

/// Runs the work, if it is the one that was asked for.
fn measured(name: &str, times: u32, work: impl FnMut(u32)) {
    if std::env::args().nth(1).is_none_or(|only| only == name) {
        counted(times, work);
        println!("{times} {name}");
    }
}

/// Only what happens in here is counted.
#[inline(never)]
fn counted(times: u32, work: impl FnMut(u32)) {
    (0..times).for_each(work);
}
