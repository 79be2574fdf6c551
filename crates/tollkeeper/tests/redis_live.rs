//! Changes that several instances follow, on one real server.

use std::time::Duration;

use tollkeeper::{
    Descriptor, Exception, ExceptionKind, Grant, Limiter, Policy, RedisOptions, RedisStore, RuleSpec, Source, Span,
    Store,
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
    // On their way back they still count as leased.
    until(async || redis.leased_tokens() == 0).await;
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
async fn while_the_server_is_unreachable_the_last_known_exceptions_stay() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server, policy("5/day", None)).await;
    limiter.except(Exception::new("r", "a", ExceptionKind::Block)).await.unwrap();
    drop(server);
    assert!(!passes(&limiter, "a").await);
    assert!(passes(&limiter, "b").await, "by this instance alone");
    assert!(limiter.except(Exception::new("r", "b", ExceptionKind::Block)).await.is_err());
    assert!(!passes(&limiter, "a").await);
}

/// A block vanished without a word when Redis was restarted: it was stored only there.
#[tokio::test(flavor = "multi_thread")]
async fn exceptions_survive_a_server_that_restarts_empty() {
    let mut server = Server::start(Kind::Redis7);
    let (one, other) =
        (limiter(&server, policy("9999/day", None)).await, limiter(&server, policy("9999/day", None)).await);
    for user in ["a", "b"] {
        one.except(Exception::new("r", user, ExceptionKind::Block)).await.unwrap();
    }
    assert!(one.lift(Some("r"), "b").await.unwrap().is_some());
    until(async || !passes(&other, "a").await).await;
    until(async || passes(&other, "b").await).await;

    server.kill();
    server.restart();
    until(async || is_stored(&server, "r a")).await;
    assert!(!is_stored(&server, "r b"), "what was lifted stays lifted");
    let late = limiter(&server, policy("9999/day", None)).await;
    assert!(!passes(&late, "a").await && !passes(&one, "a").await && !passes(&other, "a").await);
    for limiter in [&one, &other] {
        let Store::Redis(redis) = limiter.store() else { panic!("a store in Redis") };
        until(async || redis.losses() == 1).await;
    }

    assert!(other.lift(Some("r"), "a").await.unwrap().is_some());
    until(async || passes(&one, "a").await && passes(&late, "a").await).await;
    assert!(!is_stored(&server, "r a"));
}

/// Somebody blocks another key after the loss, before the instances that know the first block have put it back.
#[tokio::test(flavor = "multi_thread")]
async fn exceptions_made_after_a_loss_are_joined_by_those_from_before() {
    let mut server = Server::start(Kind::Redis7);
    let one = limiter(&server, policy("9999/day", None)).await;
    one.except(Exception::new("r", "a", ExceptionKind::Block)).await.unwrap();
    server.kill();
    server.restart();
    // What an instance that starts now and knows nothing would write.
    let (born, value) = (9_000_000_000_000_000_u64, r#"{"rule": "r", "key": "c", "kind": "block", "since_us": 1}"#);
    let mut write = redis::cmd("HSET");
    write.arg("tollkeeper:exceptions").arg("").arg(format!("{born} {born}")).arg("r c").arg(value);
    write.exec(&mut server.connect()).unwrap();
    until(async || !passes(&one, "c").await).await;
    until(async || is_stored(&server, "r a") && is_stored(&server, "r c")).await;
    assert!(!passes(&one, "a").await);
}

/// A replica was promoted that had not received the latest changes.
#[tokio::test(flavor = "multi_thread")]
async fn exceptions_that_a_failover_lost_are_put_back() {
    let server = Server::start(Kind::Redis7);
    let one = limiter(&server, policy("9999/day", None)).await;
    one.except(Exception::new("r", "a", ExceptionKind::Block)).await.unwrap();
    let mut connection = server.connect();
    let before: Vec<u8> = redis::cmd("DUMP").arg("tollkeeper:exceptions").query(&mut connection).unwrap();
    one.except(Exception::new("r", "b", ExceptionKind::Block)).await.unwrap();
    assert!(one.lift(Some("r"), "a").await.unwrap().is_some());
    let mut restore = redis::cmd("RESTORE");
    restore.arg("tollkeeper:exceptions").arg(0).arg(before).arg("REPLACE").exec(&mut connection).unwrap();
    until(async || is_stored(&server, "r b") && !is_stored(&server, "r a")).await;
    assert!(passes(&one, "a").await && !passes(&one, "b").await);
}

fn is_stored(server: &Server, field: &str) -> bool {
    redis::cmd("HEXISTS").arg("tollkeeper:exceptions").arg(field).query(&mut server.connect()).unwrap()
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
    assert!(refused.to_string().starts_with("there are already 10000 exceptions"), "{refused}");
    assert!(limiter.lift(Some("r"), "k0").await.unwrap().is_some());
    limiter.except(Exception::new("r", "more", ExceptionKind::Block)).await.unwrap();
    assert!(!passes(&limiter, "more").await && passes(&limiter, "k0").await);
}

/// The source of a granted key changed with the cache: `exception` while the store was asked, then `deny_cache` or
/// `lease`. Whoever looked for exceptions in metrics or answers missed most of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_granted_key_is_answered_by_its_exception_with_and_without_a_call() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server, policy("5/day", Some("100"))).await;
    let Store::Redis(redis) = limiter.store() else { panic!("a store in Redis") };
    let grant = |limit: &str| ExceptionKind::Grant(Grant { limit: limit.into(), burst: None });
    let ask = async |user: &str| limiter.check(&Descriptor::new([("user", user)])).await.unwrap();

    limiter.except(Exception::new("r", "few", grant("2/day"))).await.unwrap();
    for _ in 0..2 {
        assert!(ask("few").await.is_allowed());
    }
    assert!(!ask("few").await.is_allowed());
    let before = redis.traffic().calls;
    for _ in 0..500 {
        let denied = ask("few").await;
        assert_eq!((denied.is_allowed(), denied.source()), (false, Source::Exception));
    }
    assert!(redis.traffic().calls - before < 100, "the denial was cached");

    limiter.except(Exception::new("r", "many", grant("100000/day"))).await.unwrap();
    let before = redis.traffic().calls;
    for _ in 0..2_000 {
        let passed = ask("many").await;
        assert_eq!((passed.is_allowed(), passed.source()), (true, Source::Exception));
    }
    assert!(redis.traffic().calls - before < 1_500, "tokens were leased");
    assert_eq!(ask("other").await.source(), Source::Store, "a key without an exception");
}
