//! What clients read: every header style, on allowed and on denied answers.

use tollkeeper_core::{
    Algorithm, Annotation, Descriptor, Enforcement, HeaderStyle, Policy, Row, RuleSpec, Source, State, Timestamp,
    Verdict, decide_all, limit_headers, retry_after_seconds,
};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_500_000);

/// The verdict for the `nth` request of cost 1 at one moment.
fn verdict(specs: &[RuleSpec], nth: usize) -> Verdict {
    let policy = Policy::new(specs.to_vec()).unwrap();
    let charges = policy.charges(&Descriptor::new([("user", "u")])).unwrap();
    let mut states = vec![State::Fresh; charges.len()];
    let mut decisions = Vec::new();
    for _ in 0..nth {
        let decided = decide_all(&charges, &states, NOW);
        decisions = decided.iter().map(|(decision, _)| *decision).collect();
        states.iter_mut().zip(decided).for_each(|(state, (_, change))| state.apply(change));
    }
    let rows = charges.into_iter().zip(decisions);
    Verdict::new(rows.map(|(charge, decision)| Row { charge, decision, source: Source::Store }).collect())
}

fn rule(name: &str, limit: &str, algorithm: Algorithm) -> RuleSpec {
    RuleSpec { name: name.into(), key: "{user}".into(), limit: limit.into(), algorithm, ..RuleSpec::default() }
}

fn headers(style: HeaderStyle, verdict: &Verdict) -> Vec<String> {
    limit_headers(style, verdict, NOW).into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

fn tiers() -> Vec<RuleSpec> {
    vec![
        RuleSpec { burst: Some("50".into()), ..rule("burst", "10/s", Algorithm::TokenBucket) },
        rule("daily", "1,000/day", Algorithm::FixedWindow),
        RuleSpec { mode: Enforcement::Shadow, ..rule("unseen", "1/s", Algorithm::TokenBucket) },
    ]
}

#[test]
fn draft_11_names_one_policy_per_enforced_rule() {
    // 22:13:20 UTC: 6,400 seconds until midnight, rounded up.
    assert_eq!(
        headers(HeaderStyle::Draft11, &verdict(&tiers(), 1)),
        [
            r#"ratelimit-policy: "burst";q=50;w=5,"daily";q=1000;w=86400"#,
            r#"ratelimit: "burst";r=49;t=1,"daily";r=999;t=6400"#
        ]
    );
}

#[test]
fn a_rule_can_keep_out_of_the_headers() {
    let hidden = |name: &str| RuleSpec { headers: false, ..rule(name, "1/s", Algorithm::TokenBucket) };
    let specs = [hidden("hidden"), rule("shown", "5/s", Algorithm::TokenBucket)];
    let denied = verdict(&specs, 2);
    assert!(!denied.is_allowed());
    assert_eq!(
        headers(HeaderStyle::Draft11, &denied),
        [r#"ratelimit-policy: "shown";q=5;w=1"#, r#"ratelimit: "shown";r=4;t=1"#]
    );
    // Also where it is the one that denies, and there is room for one only.
    assert_eq!(headers(HeaderStyle::Draft06, &denied)[..2], ["ratelimit-limit: 5", "ratelimit-remaining: 4"]);
    assert_eq!(retry_after_seconds(&denied), Some(1));
    assert!(headers(HeaderStyle::Draft11, &verdict(&[hidden("only")], 1)).is_empty());
}

#[test]
fn a_soft_limit_lets_pass_and_tells_by_how_much() {
    let soft = RuleSpec { mode: Enforcement::Annotate, ..rule("soft", "2/s", Algorithm::TokenBucket) };
    let specs = [soft, rule("hard", "9/s", Algorithm::TokenBucket)];
    assert_eq!(verdict(&specs, 2).annotations().count(), 0);
    let over = verdict(&specs, 5);
    assert!(over.is_allowed());
    let annotations: Vec<_> = over.annotations().collect();
    let [Annotation { rule: "soft", limit: 2, over_by: 1, retry_after: Some(wait) }] = annotations[..] else {
        panic!("{annotations:?}");
    };
    assert_eq!(wait.as_micros(), 500_000, "what is over is not charged, as under an enforced rule");
    assert_eq!(headers(HeaderStyle::Draft11, &over)[1], r#"ratelimit: "hard";r=4;t=1"#, "clients see no soft limit");
}

#[test]
fn the_window_of_a_calendar_is_as_long_as_it_is() {
    let month = RuleSpec { timezone: Some("Europe/Berlin".into()), ..rule("m", "9/month", Algorithm::FixedWindow) };
    // November 2023 in Berlin, from the 14th, 22:13:20.5 UTC on.
    let shown = headers(HeaderStyle::Draft11, &verdict(&[month], 1));
    assert_eq!(shown, [r#"ratelimit-policy: "m";q=9;w=2592000"#, r#"ratelimit: "m";r=8;t=1385200"#]);
}

#[test]
fn older_styles_show_the_limit_that_binds() {
    let verdict = verdict(&tiers(), 3);
    assert_eq!(
        headers(HeaderStyle::Draft03, &verdict),
        ["ratelimit-limit: 50, 50;w=5, 1000;w=86400", "ratelimit-remaining: 47", "ratelimit-reset: 1"]
    );
    assert_eq!(
        headers(HeaderStyle::Draft06, &verdict),
        [
            "ratelimit-limit: 50",
            "ratelimit-remaining: 47",
            "ratelimit-reset: 1",
            "ratelimit-policy: 50;w=5, 1000;w=86400"
        ]
    );
    assert_eq!(
        headers(HeaderStyle::Draft07, &verdict),
        ["ratelimit: limit=50, remaining=47, reset=1", "ratelimit-policy: 50;w=5, 1000;w=86400"]
    );
    assert_eq!(
        headers(HeaderStyle::XRateLimitEpoch, &verdict),
        ["x-ratelimit-limit: 50", "x-ratelimit-remaining: 47", "x-ratelimit-reset: 1700000001"]
    );
    assert_eq!(
        headers(HeaderStyle::XRateLimitDelta, &verdict),
        ["x-ratelimit-limit: 50", "x-ratelimit-remaining: 47", "x-ratelimit-reset: 1"]
    );
    assert!(headers(HeaderStyle::None, &verdict).is_empty());
}

#[test]
fn a_denied_client_is_never_asked_to_retry_early() {
    let verdict = verdict(&[rule("slow", "1/90s", Algorithm::TokenBucket)], 2);
    assert!(!verdict.is_allowed());
    assert_eq!(retry_after_seconds(&verdict), Some(90));
    assert_eq!(
        headers(HeaderStyle::Draft11, &verdict),
        [r#"ratelimit-policy: "slow";q=1;w=90"#, r#"ratelimit: "slow";r=0;t=90"#]
    );
}

#[test]
fn slots_have_a_unit_and_no_window() {
    let verdict = verdict(&[rule("slots", "4", Algorithm::Concurrency)], 1);
    assert_eq!(headers(HeaderStyle::Draft11, &verdict)[0], r#"ratelimit-policy: "slots";q=4;qu="concurrent-requests""#);
}

#[test]
fn no_rule_no_headers() {
    assert!(headers(HeaderStyle::Draft11, &Verdict::new(Vec::new())).is_empty());
    assert_eq!(retry_after_seconds(&Verdict::new(Vec::new())), None);
}
