//! Real servers that have reached `maxmemory` and may not evict.
//!
//! 3,863 requests with a key of 62 KB each filled 256 MB in six seconds. The server then refused every write, which opened
//! the circuit breaker, and an exhausted login bucket passed again. Now keys have a maximum size, a full server is not a
//! failing one, and whoever is counted stays counted.

use std::sync::Arc;
use std::time::Duration;

use tollkeeper::{
    Algorithm, BreakerState, Charge, Descriptor, FailurePolicy, Key, Limiter, Policy, RedisOptions, RedisStore, Rule,
    RuleSpec, Source, Store, StoreError,
};
use tollkeeper_testkit::store::{Cluster, Kind, Server};

const KINDS: [Kind; 3] = Kind::ALL;

fn small(kind: Kind) -> Server {
    Server::start_with(kind, |_| ["--maxmemory", "16mb", "--maxmemory-policy", "noeviction"].map(String::from).into())
}

/// From now on there is no room for anything new.
fn fill(server: &Server) {
    fill_for(server, "x");
}

/// The same on a node of a cluster, which serves this key.
fn fill_for(server: &Server, key: &str) {
    let mut connection = server.connect();
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("100kb").query(&mut connection).unwrap();
    let refused = redis::cmd("SET").arg(key).arg("y").query::<()>(&mut connection).unwrap_err();
    assert_eq!(refused.code(), Some("OOM"));
}

async fn connect(server: &Server) -> RedisStore {
    connect_to(&server.url()).await
}

async fn connect_to(url: &str) -> RedisStore {
    let options = RedisOptions { deadline: Duration::from_secs(5), ..RedisOptions::default() };
    RedisStore::connect(url, options).await.unwrap()
}

fn rule(name: &str, algorithm: Algorithm, on_store_failure: FailurePolicy) -> RuleSpec {
    let limit = if algorithm == Algorithm::Concurrency { "5" } else { "5/day" };
    let hold = (algorithm == Algorithm::Concurrency).then(|| "1day".to_string());
    RuleSpec {
        name: name.into(),
        key: "{user}".into(),
        limit: limit.into(),
        algorithm,
        hold,
        on_store_failure,
        ..RuleSpec::default()
    }
}

fn user(name: &str) -> Descriptor {
    Descriptor::new([("user", name)])
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_counted_stays_counted_on_a_full_server() {
    for kind in KINDS {
        for algorithm in Algorithm::ALL {
            let server = small(kind);
            let policy = || Policy::new([rule("login", algorithm, FailurePolicy::Open)]).unwrap();
            let limiter = Limiter::new(policy(), connect(&server).await);
            let Store::Redis(redis) = limiter.store() else { panic!("a store in Redis") };
            for name in ["used-up", "used-up", "used-up", "used-up", "used-up", "in-use", "in-use"] {
                assert!(limiter.check(&user(name)).await.unwrap().is_allowed());
            }
            fill(&server);
            // By the store, not by a denial that is remembered.
            let other = Limiter::new(policy(), connect(&server).await);
            let denied = other.check(&user("used-up")).await.unwrap();
            assert!(!denied.is_allowed(), "{kind:?} {algorithm}");
            assert_eq!(denied.source(), Source::Store, "{kind:?} {algorithm}");
            // Charges to a bucket that exists are written.
            for remaining in [2, 1, 0] {
                let verdict = limiter.check(&user("in-use")).await.unwrap();
                assert_eq!((verdict.is_allowed(), verdict.source()), (true, Source::Store), "{kind:?} {algorithm}");
                assert_eq!(verdict.rows()[0].decision.remaining, remaining);
            }
            assert!(!limiter.check(&user("in-use")).await.unwrap().is_allowed());
            // Who is new gets what the rule says for a store that cannot count.
            let new = limiter.check(&user("new")).await.unwrap();
            assert_eq!((new.is_allowed(), new.source()), (true, Source::Policy), "{kind:?} {algorithm}");
            assert_eq!((redis.breaker(), redis.full()), (BreakerState::Closed, 1), "{kind:?} {algorithm}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rule_answers_for_new_keys_on_a_full_server() {
    let rules = [("open", FailurePolicy::Open), ("closed", FailurePolicy::Closed), ("local", FailurePolicy::Local)];
    for (name, on_store_failure) in rules {
        // One each: `local` divides a limit by the number of instances.
        let server = small(Kind::Redis7);
        let policy = Policy::new([rule(name, Algorithm::TokenBucket, on_store_failure)]).unwrap();
        let limiter = Limiter::new(policy, connect(&server).await);
        fill(&server);
        let mut passed = 0;
        for _ in 0..20 {
            passed += u32::from(limiter.check(&user("new")).await.unwrap().is_allowed());
        }
        assert_eq!(
            passed,
            [("open", 20), ("closed", 0), ("local", 5)].iter().find(|(known, _)| *known == name).unwrap().1
        );
    }
}

/// Many requests go out in one call. Those that need new keys must not keep the others from being counted.
#[tokio::test(flavor = "multi_thread")]
async fn new_keys_do_not_disturb_the_others_of_their_call() {
    // Buckets alone have a script of their own.
    let bucket = rule("bucket", Algorithm::TokenBucket, FailurePolicy::Open);
    let log = rule("log", Algorithm::SlidingWindowLog, FailurePolicy::Open);
    for (kind, rules) in
        KINDS.into_iter().flat_map(|kind| [(kind, vec![bucket.clone()]), (kind, vec![bucket.clone(), log.clone()])])
    {
        let server = small(kind);
        let limiter = Arc::new(Limiter::new(Policy::new(rules).unwrap(), connect(&server).await));
        for nth in 0..10 {
            assert!(limiter.check(&user(&format!("old-{nth}"))).await.unwrap().is_allowed());
        }
        fill(&server);
        let ask = |name: String| {
            let limiter = limiter.clone();
            tokio::spawn(async move { (name.clone(), limiter.check(&user(&name)).await.unwrap()) })
        };
        let asked: Vec<_> = (0..400).map(|nth| ask(format!("{}-{}", ["old", "new"][nth % 2], nth / 2 % 10))).collect();
        let mut passed = [0, 0];
        for asked in asked {
            let (name, verdict) = asked.await.unwrap();
            let is_new = name.starts_with("new");
            assert!(!is_new || verdict.source() == Source::Policy, "{kind:?} {name}");
            passed[usize::from(is_new)] += u32::from(verdict.is_allowed());
        }
        assert_eq!(passed, [40, 200], "{kind:?}: four were left to each that is counted, and the policy is `open`");
    }
}

/// All or nothing: what the store decides is charged only if the failure policy of the others lets it pass.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_new_and_a_known_key_is_decided_by_both() {
    let server = small(Kind::Redis7);
    let store = connect(&server).await;
    let charge = |rule: &str, key: &str| {
        let rule: Rule =
            RuleSpec { name: rule.into(), key: "{k}".into(), limit: "5/day".into(), ..RuleSpec::default() }
                .build()
                .unwrap();
        Charge::new(Arc::new(rule), Key { variant: 0, value: key.into() }, 1)
    };
    store.charge(&[charge("a", "known")]).await.unwrap();
    fill(&server);
    let both = [charge("a", "known"), charge("b", "new")];
    let refused = store.charge(&both).await.unwrap_err();
    assert!(matches!(&refused, StoreError::PartlyUnavailable { charges, .. } if *charges == [1]), "{refused}");
    assert!(refused.to_string().contains("Redis is full"), "{refused}");
    let left = store.charge(&[charge("a", "known")]).await.unwrap()[0].0.remaining;
    assert_eq!(left, 3, "the refused one was not charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_and_estimates_are_returned_on_a_full_server() {
    for kind in KINDS {
        let server = small(kind);
        let jobs = rule("jobs", Algorithm::Concurrency, FailurePolicy::Closed);
        let tokens = rule("tokens", Algorithm::TokenBucket, FailurePolicy::Closed);
        let limiter = Limiter::new(Policy::new([jobs, tokens]).unwrap(), connect(&server).await);
        let Store::Redis(redis) = limiter.store() else { panic!("a store in Redis") };
        let verdict = limiter.check(&user("a")).await.unwrap();
        fill(&server);
        let charge = &verdict.rows()[0].charge;
        assert!(redis.release(charge.bucket(), verdict.rows()[0].decision.hold.unwrap()).await.unwrap(), "{kind:?}");
        assert!(redis.refund(verdict.rows()[1].charge.bucket(), 1).await.unwrap(), "{kind:?}");
        assert_eq!(redis.breaker(), BreakerState::Closed);
    }
}

/// Where a server had no room for one rule of an estimate, the others were charged the estimate and never what was used
/// beyond it. (The simulation found this, seed 964.)
#[tokio::test(flavor = "multi_thread")]
async fn usage_beyond_an_estimate_is_charged_on_a_full_server() {
    let server = small(Kind::Redis7);
    let known = rule("known", Algorithm::TokenBucket, FailurePolicy::Closed);
    let new = RuleSpec { key: "{device}".into(), ..rule("new", Algorithm::TokenBucket, FailurePolicy::Open) };
    let limiter = Arc::new(Limiter::new(Policy::new([known, new]).unwrap(), connect(&server).await));
    assert!(limiter.check(&user("a")).await.unwrap().is_allowed());
    fill(&server);
    let request = Descriptor::new([("user", "a"), ("device", "phone")]);
    let (verdict, reservation) = limiter.reserve(&request).await.unwrap();
    assert!(verdict.is_allowed());
    reservation.settle(3).await.unwrap();
    let left = limiter.inspect("known", "a").await.unwrap().unwrap()[0].decision.remaining;
    assert_eq!(left, 1, "one before, and three of this request");
}

/// The nodes of a cluster fill up one by one, since keys are not of equal size.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_of_a_cluster_concerns_only_its_own_new_keys() {
    let cluster = Cluster::start();
    let policy = Policy::new([rule("login", Algorithm::TokenBucket, FailurePolicy::Closed)]).unwrap();
    let limiter = Limiter::new(policy, connect_to(&cluster.url()).await);
    let Store::Redis(redis) = limiter.store() else { panic!("a store in Redis") };
    let full = cluster.primaries()[0];
    let (here, elsewhere): (Vec<String>, Vec<String>) =
        (0..60).map(|nth| format!("user-{nth}")).partition(|name| cluster.primary_of(cluster.slot_of(name)) == full);
    let (known, new) = here.split_first_chunk::<3>().expect("a third of all");
    for name in known {
        assert_eq!(limiter.check(&user(name)).await.unwrap().source(), Source::Store);
    }
    fill_for(cluster.node(full), &format!("{{{}}}", known[0]));
    for name in known {
        let mut passed = 0;
        for _ in 0..10 {
            let verdict = limiter.check(&user(name)).await.unwrap();
            assert!(matches!(verdict.source(), Source::Store | Source::DenyCache), "{name}: {:?}", verdict.source());
            passed += u32::from(verdict.is_allowed());
        }
        assert_eq!(passed, 4, "{name} was counted and stays counted");
    }
    for name in new {
        let verdict = limiter.check(&user(name)).await.unwrap();
        assert_eq!((verdict.source(), verdict.is_allowed()), (Source::Policy, false), "{name}");
    }
    for name in &elsewhere {
        let verdict = limiter.check(&user(name)).await.unwrap();
        assert_eq!((verdict.source(), verdict.is_allowed()), (Source::Store, true), "{name}");
    }
    assert_eq!((redis.full(), redis.breaker()), (new.len() as u64, BreakerState::Closed));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_keys_do_not_fill_a_server() {
    let server = small(Kind::Redis7);
    let policy = Policy::new([rule("per-key", Algorithm::TokenBucket, FailurePolicy::Open)]).unwrap();
    let limiter = Limiter::new(policy, connect(&server).await);
    for nth in 0..2_000 {
        let key = format!("{nth:>63000}");
        let verdict = limiter.check(&user(&key)).await.unwrap();
        assert_eq!(verdict.source(), Source::Store, "request {nth}");
    }
    let key = format!("{:>63000}", 7);
    assert_eq!(limiter.inspect("per-key", &key).await.unwrap().unwrap()[0].decision.remaining, 4);
    assert!(limiter.reset("per-key", &Key { variant: 0, value: key.clone() }).await.unwrap().unwrap());
    assert_eq!(limiter.inspect("per-key", &key).await.unwrap().unwrap()[0].decision.remaining, 5);
    let longest: usize = redis::cmd("KEYS")
        .arg("tollkeeper:*")
        .query::<Vec<String>>(&mut server.connect())
        .unwrap()
        .iter()
        .map(String::len)
        .max()
        .unwrap();
    assert!(longest < 100, "{longest}");
}
