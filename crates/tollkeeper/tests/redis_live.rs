//! Changes that several instances follow, on one real server.

use std::time::Duration;

use tollkeeper::{
    Descriptor, Exception, ExceptionKind, Limiter, Policy, RedisOptions, RedisStore, RuleSpec, Source, Span, Store,
};
use tollkeeper_testkit::store::{Kind, Server};

fn policy(limit: &str, lease: Option<&str>) -> Policy {
    let lease = lease.map(Into::into);
    let spec = RuleSpec { name: "r".into(), key: "{user}".into(), limit: limit.into(), lease, ..RuleSpec::default() };
    Policy::new([spec]).unwrap()
}

async fn limiter(server: &Server, policy: Policy) -> Limiter {
    let options = RedisOptions { deadline: Duration::from_secs(5), ..RedisOptions::default() };
    Limiter::new(policy, RedisStore::connect(&server.url(), options).await.unwrap())
}

async fn passes(limiter: &Limiter, user: &str) -> bool {
    limiter.check(&Descriptor::new([("user", user)])).await.unwrap().is_allowed()
}

/// Polls until a condition holds; a test that never gets there fails by its own time limit.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Duration::from_secs(20);
    let asked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(patience, asked).await.expect("it comes to pass");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_limit_ends_remembered_denials_at_once() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server, policy("5/day", None)).await;
    for _ in 0..5 {
        assert!(passes(&limiter, "a").await);
    }
    assert!(!passes(&limiter, "a").await);
    let again = limiter.check(&Descriptor::new([("user", "a")])).await.unwrap();
    assert_eq!(again.source(), Source::DenyCache);
    limiter.replace_policy(policy("7/day", None));
    assert!(passes(&limiter, "a").await && passes(&limiter, "a").await && !passes(&limiter, "a").await);
    limiter.replace_policy(policy("6/day", None));
    assert!(!passes(&limiter, "a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_changed_rules_are_returned() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server, policy("100000/day", Some("1000"))).await;
    let Store::Redis(redis) = limiter.store() else { panic!("a store in Redis") };
    until(async || {
        for _ in 0..50 {
            passes(&limiter, "a").await;
        }
        redis.leased_tokens() > 0
    })
    .await;
    limiter.replace_policy(policy("200000/day", Some("1000")));
    assert_eq!(redis.leased_tokens(), 0);
    // They have been returned: only spent ones are missing, a few hundred.
    until(async || limiter.inspect("r", "a").await.unwrap().unwrap()[0].decision.remaining > 199_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_instances_follow_exceptions() {
    let server = Server::start(Kind::Redis7);
    let (one, other) =
        (limiter(&server, policy("9999/day", None)).await, limiter(&server, policy("9999/day", None)).await);
    let hour = one.store().now() + Span::from_secs(3_600);
    one.except(Exception::new("r", "a", ExceptionKind::Block).until(hour).because("scraper")).await.unwrap();
    assert!(!passes(&one, "a").await, "at once where it was made");
    until(async || !passes(&other, "a").await).await;
    assert_eq!(other.exceptions(), one.exceptions());
    assert_eq!(other.exceptions()[0].reason.as_deref(), Some("scraper"));

    let late = limiter(&server, policy("9999/day", None)).await;
    assert!(!passes(&late, "a").await, "who starts later knows it from the first request on");

    assert!(other.lift(Some("r"), "a").await.unwrap().is_some());
    until(async || passes(&one, "a").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_the_last_known_exceptions_stay() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server, policy("5/day", None)).await;
    limiter.except(Exception::new("r", "a", ExceptionKind::Block)).await.unwrap();
    drop(server);
    assert!(!passes(&limiter, "a").await);
    assert!(passes(&limiter, "b").await, "by this instance alone");
    assert!(limiter.except(Exception::new("r", "b", ExceptionKind::Block)).await.is_err());
    assert!(!passes(&limiter, "a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_an_end_to_exceptions() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server, policy("5/day", None)).await;
    let mut connection = server.connect();
    let mut fill = redis::cmd("HSET");
    fill.arg("tollkeeper:exceptions").arg("").arg("1");
    for number in 0..10_000 {
        let value = format!(r#"{{"rule": "r", "key": "k{number}", "kind": "block", "since_us": 1}}"#);
        fill.arg(format!("r k{number}")).arg(value);
    }
    fill.exec(&mut connection).unwrap();
    until(async || !passes(&limiter, "k9999").await).await;
    let refused = limiter.except(Exception::new("r", "more", ExceptionKind::Block)).await.unwrap_err();
    assert!(refused.to_string().starts_with("there are 10000 exceptions already"), "{refused}");
    assert!(limiter.lift(Some("r"), "k0").await.unwrap().is_some());
    limiter.except(Exception::new("r", "more", ExceptionKind::Block)).await.unwrap();
    assert!(!passes(&limiter, "more").await && passes(&limiter, "k0").await);
}
