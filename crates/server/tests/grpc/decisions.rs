//! Decisions: all or nothing, statuses in order, hits, and limits sent by the caller.

use super::*;
use crate::envoy_client::Code::{Ok as Passed, OverLimit};
use crate::envoy_client::Unit;

const PER_USER: &str = "
rules:
  - { name: per-user, key: '{user}', limit: 3/day, algorithm: fixed_window, when: { domain: shop } }
  - { name: per-path, key: '{path}', limit: 10/36h, algorithm: fixed_window }
";

fn path(value: &str) -> RateLimitDescriptor {
    descriptor(&[("path", value)])
}

#[tokio::test]
async fn each_descriptor_has_its_status_in_order() {
    let gate = Gate::on(PER_USER).await;
    let answer = gate.ask(request(&[path("/a"), descriptor(&[("other", "x")]), user("ann")])).await.unwrap();
    assert_eq!(answer.overall_code(), Passed);
    let [by_path, unlimited, by_user] = &answer.statuses[..] else { panic!("{answer:?}") };
    let limit = by_path.current_limit.as_ref().unwrap();
    // 10 in 36 hours has no matching unit.
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit()), ("per-path", 46, Unit::Week));
    assert_eq!((by_path.code(), by_path.limit_remaining), (Passed, 9));
    assert_eq!((unlimited.code(), &unlimited.current_limit), (Passed, &None));
    let limit = by_user.current_limit.as_ref().unwrap();
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit()), ("per-user", 3, Unit::Day));
    assert_eq!(by_user.limit_remaining, 2);
    let seconds = by_user.duration_until_reset.as_ref().unwrap().seconds;
    assert!((0..86_400).contains(&seconds), "{seconds} s until the next day");
}

#[tokio::test]
async fn one_denial_charges_nothing_anywhere() {
    let gate = Gate::on(PER_USER).await;
    for left in [2, 1, 0] {
        assert_eq!(gate.codes(&[user("ann")]).await, (Passed, vec![(Passed, left)]));
    }
    let (overall, statuses) = gate.codes(&[path("/a"), user("ann"), user("bob")]).await;
    assert_eq!((overall, statuses), (OverLimit, vec![(Passed, 10), (OverLimit, 0), (Passed, 3)]));
    assert_eq!(gate.codes(&[path("/a"), user("bob")]).await, (Passed, vec![(Passed, 9), (Passed, 2)]));
}

#[tokio::test]
async fn descriptors_that_share_a_bucket_are_added_up() {
    let gate = Gate::on(PER_USER).await;
    assert_eq!(gate.codes(&[user("ann"), user("ann")]).await, (Passed, vec![(Passed, 1), (Passed, 1)]));
    assert_eq!(gate.codes(&[user("ann"), user("ann")]).await, (OverLimit, vec![(OverLimit, 1), (OverLimit, 1)]));
    assert_eq!(gate.codes(&[user("ann")]).await, (Passed, vec![(Passed, 0)]));
}

#[tokio::test]
async fn the_domain_is_an_attribute_and_repeated_keys_are_numbered() {
    let gate = Gate::on(
        "rules:
  - { name: exact, key: '{generic_key#2}', limit: 1/h, when: { domain: shop, generic_key: a, descriptor: 'generic_key,generic_key' } }",
    )
    .await;
    let twice = descriptor(&[("generic_key", "a"), ("generic_key", "b")]);
    let status = gate.status(twice.clone()).await;
    assert_eq!(status.current_limit.unwrap().name, "exact");
    // Another domain, another depth and another order are other descriptors.
    let elsewhere = RateLimitRequest { domain: "mail".into(), ..request(&[twice]) };
    assert_eq!(gate.ask(elsewhere).await.unwrap().statuses[0].current_limit, None);
    let longer = descriptor(&[("generic_key", "a"), ("generic_key", "b"), ("x", "y")]);
    assert_eq!(gate.status(longer).await.current_limit, None);
    assert_eq!(gate.status(descriptor(&[("generic_key", "b"), ("generic_key", "a")])).await.current_limit, None);
    // An entry cannot pretend to be the domain.
    let forged = descriptor(&[("domain", "shop"), ("generic_key", "a"), ("generic_key", "c")]);
    let forged = RateLimitRequest { domain: "mail".into(), ..request(&[forged]) };
    assert_eq!(gate.ask(forged).await.unwrap().statuses[0].current_limit, None);
}

#[tokio::test]
async fn hits_are_the_descriptors_else_the_requests_else_one() {
    let gate = Gate::on(PER_USER).await;
    let ask = |hits_addend, descriptor| RateLimitRequest { hits_addend, ..request(&[descriptor]) };
    let left = async |request| gate.ask(request).await.unwrap().statuses[0].limit_remaining;
    assert_eq!(left(ask(2, user("request"))).await, 1);
    assert_eq!(left(ask(2, with_hits(user("descriptor"), 3))).await, 0);
    assert_eq!(left(ask(0, user("neither"))).await, 2);
    assert_eq!(left(ask(2, with_hits(user("check"), 0))).await, 3);
    assert_eq!(left(ask(2, user("check"))).await, 1);
    // More than can ever pass: over limit, and waiting does not help.
    let never = gate.ask(ask(0, with_hits(user("never"), u64::MAX))).await.unwrap();
    assert_eq!(never.overall_code(), OverLimit);
    assert!(never.response_headers_to_add.iter().all(|header| header.key != "retry-after"), "{never:?}");
}

#[tokio::test]
async fn a_check_that_finds_nothing_left_stops_the_whole_request() {
    let gate = Gate::on(PER_USER).await;
    let check = with_hits(user("ann"), 0);
    assert_eq!(gate.codes(&[check.clone(), path("/a")]).await, (Passed, vec![(Passed, 3), (Passed, 9)]));
    gate.codes(&[with_hits(user("ann"), 3)]).await;
    assert_eq!(gate.codes(&[check, path("/a")]).await, (OverLimit, vec![(OverLimit, 0), (Passed, 9)]));
    assert_eq!(gate.codes(&[path("/a")]).await, (Passed, vec![(Passed, 8)]));
}

#[tokio::test]
async fn a_callers_limit_replaces_that_of_the_rule_in_the_same_bucket() {
    let gate = Gate::on(&format!("{PER_USER}  - {{ name: everybody, key: all, limit: 1_000/h }}\n")).await;
    let five = |name: &str| with_limit(user(name), 5, RateLimitUnit::Minute);
    let status = gate.status(five("ann")).await;
    let limit = status.current_limit.unwrap();
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit()), ("per-user", 5, Unit::Minute));
    assert_eq!(status.limit_remaining, 4);
    // The most specific rule is reported, not the one for all requests.
    assert_eq!(gate.status(descriptor(&[("other", "x")])).await.current_limit.unwrap().requests_per_unit, 1_000);
    // 0 lets nothing pass.
    let none = gate.status(with_limit(user("bob"), 0, RateLimitUnit::Hour)).await;
    assert_eq!((none.code(), none.limit_remaining), (OverLimit, 0));
    assert_eq!(none.current_limit.unwrap().requests_per_unit, 0);
    let error = gate.ask(request(&[with_limit(user("ann"), 5, RateLimitUnit::Unknown)])).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    assert!(error.message().starts_with("descriptors[0].limit.unit: "), "{error}");
}

#[tokio::test]
async fn hits_can_be_refunded_and_never_beyond_the_limit() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"] {
        let gate =
            Gate::on(&format!("rules: [{{ name: r, key: '{{user}}', limit: 10/day, algorithm: {algorithm} }}]")).await;
        assert_eq!(gate.status(with_hits(user("ann"), 8)).await.limit_remaining, 2, "{algorithm}");
        assert_eq!(gate.status(refunded(user("ann"), 5)).await.limit_remaining, 7, "{algorithm}");
        assert_eq!(gate.status(refunded(user("ann"), 500)).await.limit_remaining, 10, "{algorithm}");
        assert_eq!(gate.status(refunded(user("new"), 5)).await.limit_remaining, 10, "{algorithm}");
    }
}

#[tokio::test]
async fn headers_show_limits_and_when_to_retry() {
    let gate = Gate::on(PER_USER).await;
    let headers = async || {
        let answer = gate.ask(request(&[user("ann"), user("bob")])).await.unwrap();
        let pairs = answer.response_headers_to_add.into_iter().map(|header| (header.key, header.value));
        pairs.collect::<std::collections::BTreeMap<_, _>>()
    };
    let first = headers().await;
    // One policy per rule, however many of its buckets were used.
    assert_eq!(first["ratelimit-policy"], "\"per-user\";q=3;w=86400");
    assert!(first["ratelimit"].starts_with("\"per-user\";r=2;t="), "{first:?}");
    assert!(!first.contains_key("retry-after"));
    headers().await;
    headers().await;
    let denied = headers().await;
    let wait: u64 = denied["retry-after"].parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{denied:?}");
}

#[tokio::test]
async fn bad_requests_are_answered_with_what_is_wrong() {
    let gate = Gate::on("rules: [{ name: uploads, key: '{user}', limit: 10/h, cost: parts }]").await;
    let many: Vec<_> = (0..101).map(|_| user("a")).collect();
    let wide: Vec<_> = (0..101).map(|_| ("k", "v")).collect();
    let cases = [
        (RateLimitRequest { domain: String::new(), ..request(&[user("a")]) }, "domain: is empty"),
        (request(&[]), "descriptors: is empty"),
        (request(&many), "descriptors: 101 are too many"),
        (request(&[user("a"), descriptor(&wide)]), "descriptors[1].entries: 101 are too many"),
        (request(&[descriptor(&[("", "x")])]), "descriptors[0].entries[0].key: is empty"),
        (request(&[descriptor(&[("user", "a"), ("parts", "many")])]), "parts: is the cost of rule `uploads`"),
    ];
    for (request, expected) in cases {
        let error = gate.ask(request).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{expected}");
        assert!(error.message().starts_with(expected), "{error}");
    }
    let huge = "x".repeat(70_000);
    assert_eq!(gate.ask(request(&[user(&huge)])).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
}

/// `duration_until_reset` had fractions, which Envoy drops: `x-ratelimit-reset: 0` beside `retry-after: 1`.
#[tokio::test]
async fn the_time_until_a_reset_is_rounded_up() {
    let gate = Gate::on("rules: [{ name: r, key: '{user}', limit: 1/s, algorithm: fixed_window }]").await;
    for _ in 0..3 {
        let reset = gate.status(user("ann")).await.duration_until_reset.unwrap();
        assert_eq!((reset.seconds, reset.nanos), (1, 0));
    }
    // A window that is not used yet ends too.
    let unused = gate.status(with_hits(user("bob"), 0)).await.duration_until_reset.unwrap();
    assert_eq!((unused.seconds, unused.nanos), (1, 0));
}

/// Of several alternatives one must have room, and a denied call is charged nowhere.
#[tokio::test]
async fn quotas_deny_only_together() {
    let redis = tollkeeper_testkit::store::Server::start(tollkeeper_testkit::store::Kind::Redis7);
    for store in ["memory:".to_string(), redis.url()] {
        let gate = Gate::on(&format!(
            "store: {{ url: '{store}', timeout: 5s }}
rules:
  - {{ name: one, key: all, when: {{ service: one }}, limit: 1/day, algorithm: fixed_window, mode: quota }}
  - {{ name: two, key: all, when: {{ service: two }}, limit: 2/day, algorithm: fixed_window, mode: quota }}
  - {{ name: user, key: '{{user}}', limit: 9/day, algorithm: fixed_window }}
"
        ))
        .await;
        let service = |name: &str| descriptor(&[("service", name)]);
        let call = [service("one"), service("two"), user("ann")];
        let left = |one, two, ann| vec![one, two, (Passed, ann)];
        assert_eq!(gate.codes(&call).await, (Passed, left((Passed, 0), (Passed, 1), 8)), "{store}");
        assert_eq!(gate.codes(&call).await, (Passed, left((OverLimit, 0), (Passed, 0), 7)), "{store}");
        for _ in 0..3 {
            assert_eq!(gate.codes(&call).await, (OverLimit, left((OverLimit, 0), (OverLimit, 0), 7)), "{store}");
        }
        assert_eq!(gate.codes(&[user("ann")]).await, (Passed, vec![(Passed, 6)]), "{store}");
        // On every front.
        let answer = gate.service.check(&serde_json::json!({ "attributes": { "service": "one", "user": "bob" } }));
        assert_eq!((&answer["allowed"], &answer["limiting"]), (&false.into(), &"one".into()), "{store}: {answer}");
        assert_eq!(gate.codes(&[user("bob")]).await, (Passed, vec![(Passed, 8)]), "{store}");
    }
}

#[tokio::test]
async fn a_callers_limit_is_enforced_without_a_rule_and_on_a_shadow() {
    let gate = Gate::on(
        "rules:
  - { name: trial, key: '{trial}', limit: 1/day, algorithm: fixed_window, mode: shadow }
  - { name: closed, key: '{closed}', limit: 1/day, algorithm: fixed_window, cost: 2 }
",
    )
    .await;
    for name in ["nothing", "trial", "closed"] {
        let one = with_limit(descriptor(&[(name, "x")]), 2, RateLimitUnit::Day);
        for (code, left) in [(Passed, 1), (Passed, 0), (OverLimit, 0)] {
            assert_eq!(gate.codes(std::slice::from_ref(&one)).await, (code, vec![(code, left)]), "{name}");
        }
        let other = with_limit(descriptor(&[(name, "y")]), 2, RateLimitUnit::Day);
        assert_eq!(gate.codes(&[other]).await.0, Passed, "a bucket for each value of {name}");
    }
    // Rules that never deny show what they count, and a rule that lets nothing pass shows 0.
    let trial = gate.status(descriptor(&[("trial", "z")])).await;
    assert_eq!((trial.code(), trial.limit_remaining, trial.current_limit.unwrap().name), (Passed, 0, "trial".into()));
    let closed = gate.status(descriptor(&[("closed", "z")])).await;
    assert_eq!(
        (closed.code(), closed.limit_remaining, closed.current_limit.unwrap().requests_per_unit),
        (OverLimit, 0, 0)
    );
    let series = "tollkeeper_decisions_total{rule=\"(envoy.override)\",outcome=\"denied\",source=\"store\"}";
    assert_eq!(gate.service.metric(series), 2.0);
}

/// An empty header is an entry with an empty value. It had no bucket, so it escaped the limit.
#[tokio::test]
async fn an_empty_value_is_limited_like_any_other() {
    let gate = Gate::on(PER_USER).await;
    for left in [2, 1, 0] {
        assert_eq!(gate.codes(&[user("")]).await, (Passed, vec![(Passed, left)]));
    }
    assert_eq!(gate.codes(&[user("")]).await.0, OverLimit);
    assert_eq!(gate.codes(&[user("ann")]).await, (Passed, vec![(Passed, 2)]));
}
