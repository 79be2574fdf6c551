//! The store in real deployments: behind Sentinel, with TLS, and as a cluster that fails over and reshards.

use std::sync::Arc;
use std::time::Duration;

use tollkeeper::{
    Algorithm, ConnectError, Descriptor, FailurePolicy, Limiter, Policy, RedisOptions, RedisStore, RedisTls, RuleSpec,
    Source,
};
use tollkeeper_testkit::store::{ClientCertificates, Cluster, Kind, Sentinels, Server, TlsServer};

fn options() -> RedisOptions {
    RedisOptions { deadline: Duration::from_millis(300), ..RedisOptions::default() }
}

fn rule(name: &str, key: &str, limit: &str, algorithm: Algorithm) -> RuleSpec {
    let (name, key, limit, on_store_failure) = (name.into(), key.into(), limit.into(), FailurePolicy::Open);
    RuleSpec { name, key, limit, algorithm, on_store_failure, ..RuleSpec::default() }
}

fn per_user() -> RuleSpec {
    rule("user", "{user}", "100/day", Algorithm::FixedWindow)
}

async fn limiter(url: &str, rules: impl IntoIterator<Item = RuleSpec>) -> Limiter {
    let store = RedisStore::connect(url, options()).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    Limiter::new(Policy::new(rules).unwrap(), store)
}

async fn ask(limiter: &Limiter, user: &str) -> (Source, bool) {
    let verdict = limiter.check(&Descriptor::new([("user", user)])).await.unwrap();
    (verdict.source(), verdict.is_allowed())
}

/// Waits until the store answers for this user again.
async fn comes_back(limiter: &Limiter, user: &str) {
    for _ in 0..500 {
        if ask(limiter, user).await.0 == Source::Store {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the store never came back for {user}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_promoted_replica_is_followed_behind_sentinels() {
    for login in [None, Some(("limiter", "secret"))] {
        let mut sentinels = match login {
            None => Sentinels::start(),
            Some((user, password)) => Sentinels::start_with_password(user, password),
        };
        let login = login.map(|(user, password)| format!("{user}:{password}@")).unwrap_or_default();
        let hosts = sentinels.addresses().join(",");
        let limiter = limiter(&format!("redis+sentinel://{login}{hosts}/{}", sentinels.service()), [per_user()]).await;
        assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
        let old = sentinels.kill_primary();
        assert_eq!(ask(&limiter, "a").await, (Source::Policy, true));
        sentinels.wait_for_failover(old);
        comes_back(&limiter, "a").await;

        let unknown = RedisStore::connect(&format!("redis+sentinel://{login}{hosts}/nobody"), options()).await;
        let error = unknown.unwrap_err().to_string();
        assert!(error.contains("has no primary named \"nobody\""), "{error}");
    }
}

/// A planned failover promoted the replica, and the old primary stayed writable for 11 seconds: sentinels demote it that
/// late. One instance stayed on it, another had gone to the new one, and together they admitted twice the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed_while_the_old_primary_still_takes_writes() {
    let sentinels = Sentinels::start();
    sentinels.slow_down();
    let url = format!("redis+sentinel://{}/{}", sentinels.addresses().join(","), sentinels.service());
    let limiters = [limiter(&url, [per_user()]).await, limiter(&url, [per_user()]).await];
    let old = sentinels.fail_over();
    let new = sentinels.wait_for_failover(old);
    let mut connection = sentinels.data(new).connect();
    for (instance, limiter) in limiters.iter().enumerate() {
        for attempt in 0.. {
            // A new user each time: the key shows where the request was counted.
            let user = format!("user-{instance}-{attempt}");
            ask(limiter, &user).await;
            let keys: Vec<String> = redis::cmd("KEYS").arg(format!("*{user}*")).query(&mut connection).unwrap();
            if !keys.is_empty() {
                break;
            }
            assert!(sentinels.is_primary(old), "it was followed only when the old primary was demoted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(sentinels.is_primary(old), "otherwise this test shows nothing");
}

/// The crashed primary is started again, empty, and takes itself for a primary until the sentinels demote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_comes_back_is_not_used() {
    let mut sentinels = Sentinels::start();
    sentinels.slow_down();
    let url = format!("redis+sentinel://{}/{}", sentinels.addresses().join(","), sentinels.service());
    let limiter = limiter(&url, [per_user()]).await;
    let old = sentinels.kill_primary();
    sentinels.wait_for_failover(old);
    comes_back(&limiter, "a").await;
    sentinels.restart(old);
    let mut connection = sentinels.data(old).connect();
    while sentinels.is_primary(old) {
        ask(&limiter, "a").await;
        let mut scan = redis::cmd("KEYS");
        let keys: Vec<String> = scan.arg("tollkeeper:{a}*").query(&mut connection).unwrap();
        assert!(keys.is_empty() || !sentinels.is_primary(old), "{keys:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_named() {
    let pem = |path: &str| Some(std::fs::read(path).unwrap());
    for clients in [ClientCertificates::NotAsked, ClientCertificates::Required] {
        let server = TlsServer::start(clients);
        let connect = async |tls| RedisStore::connect(&server.url(), RedisOptions { tls, ..options() }).await;
        let authority = RedisTls { authority: pem(&server.authority.pem), ..RedisTls::default() };
        let client = (pem(&server.client.cert), pem(&server.client.key));
        let both = RedisTls { certificate: client.0, key: client.1, ..authority.clone() };
        assert!(connect(Some(both.clone())).await.is_ok());
        assert_eq!(connect(Some(authority)).await.is_ok(), clients == ClientCertificates::NotAsked);
        let untrusting = connect(None).await.unwrap_err().to_string();
        assert!(untrusting.contains("UnknownIssuer"), "{untrusting}");
        let keyless = connect(Some(RedisTls { key: None, ..both })).await.unwrap_err().to_string();
        assert!(keyless.contains("needs its key"), "{keyless}");
        let empty = connect(Some(RedisTls { authority: Some(b"hello".into()), ..RedisTls::default() }));
        let empty = empty.await.unwrap_err().to_string();
        assert!(empty.contains("no certificate"), "{empty}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_of_the_wrong_kind_is_distinguished() {
    let (server, cluster) = (Server::start(Kind::Redis7), Cluster::start());
    let refused = async |url: String| RedisStore::connect(&url, options()).await.unwrap_err();
    let error = refused(cluster.nodes[0].url()).await;
    assert!(matches!(&error, ConnectError::Mode(problem) if problem.contains("redis+cluster://")), "{error}");
    let error = refused(format!("redis+cluster://127.0.0.1:{}", server.port())).await;
    assert!(matches!(&error, ConnectError::Mode(problem) if problem.contains("redis://")), "{error}");
    let found = RedisStore::connect(&cluster.url(), options()).await.unwrap();
    assert_eq!(found.server().to_string(), format!("redis {}, cluster of 3 primaries", found.server().version));
}

/// Many callers, rules in three hash slots, and a limit that runs out in each: what is admitted fits every limit, and
/// what is left is the limit minus that, so no denied request stays charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn across_slots_never_more_than_a_limit_passes_and_denials_end_charged_nowhere() {
    let cluster = Cluster::start_with_password("pass");
    let rules = [
        rule("user", "{user}", "60/day", Algorithm::TokenBucket),
        rule("tenant", "tenant-{tenant}", "100/day", Algorithm::SlidingWindowLog),
        rule("global", "global", "250/day", Algorithm::FixedWindow),
        RuleSpec { mode: tollkeeper::Enforcement::Shadow, ..rule("watch", "watched", "150/day", Algorithm::Gcra) },
    ];
    let mut tasks = Vec::new();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let limiter = Arc::new(limiter(&cluster.url(), rules.clone()).await);
        limiters.push(limiter.clone());
        for task in 0..12 {
            let limiter = limiter.clone();
            tasks.push(tokio::spawn(async move {
                let (user, tenant) = (task % 6, task % 3);
                let (name, of) = (user.to_string(), tenant.to_string());
                let request = Descriptor::new([("user", name.as_str()), ("tenant", of.as_str())]);
                let mut admitted = 0;
                for _ in 0..80 {
                    let verdict = limiter.check(&request).await.unwrap();
                    assert!(!verdict.is_degraded(), "{verdict:?}");
                    admitted += u32::from(verdict.is_allowed());
                }
                (user, tenant, admitted)
            }));
        }
    }
    let (mut users, mut tenants, mut total) = ([0; 6], [0; 3], 0);
    for task in tasks {
        let (user, tenant, admitted) = task.await.unwrap();
        users[user] += admitted;
        tenants[tenant] += admitted;
        total += admitted;
    }
    assert_eq!(total, 250, "the global limit runs out: {users:?} {tenants:?}");
    let left =
        async |rule: &str, key: &str| limiters[0].inspect(rule, key).await.unwrap().unwrap()[0].decision.remaining;
    for (user, admitted) in users.iter().enumerate() {
        assert_eq!(left("user", &user.to_string()).await, 60 - admitted);
    }
    for (tenant, admitted) in tenants.iter().enumerate() {
        assert_eq!(left("tenant", &format!("tenant-{tenant}")).await, 100 - admitted);
    }
    assert_eq!(left("global", "global").await, 0);
    assert_eq!(left("watch", "watched").await, 0, "a shadow rule is charged for what passed, as long as it fits");
}

/// A primary dies: users of other nodes do not notice; its own users are answered by policy, and then by the new
/// primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_concerns_only_the_slots_of_the_node() {
    let mut cluster = Cluster::start_with(500);
    let limiter = limiter(&cluster.url(), [per_user()]).await;
    let slot = |user: &str| cluster.slot_of(&format!("tollkeeper:{{{user}}}0:user"));
    let (mine, others): (Vec<String>, Vec<String>) = {
        let owner = cluster.primary_of(slot("a"));
        (0..20).map(|nth| format!("user-{nth}")).partition(|user| cluster.primary_of(slot(user)) == owner)
    };
    for user in mine.iter().chain(&others) {
        assert_eq!(ask(&limiter, user).await, (Source::Store, true));
    }
    let lost = slot("a");
    let old = cluster.kill_primary_of(lost);
    assert_eq!(ask(&limiter, &mine[0]).await, (Source::Policy, true));
    for user in &others {
        assert_eq!(ask(&limiter, user).await, (Source::Store, true), "{user} is on a node that lives");
    }
    cluster.wait_for_new_primary(lost, old);
    for user in &mine {
        comes_back(&limiter, user).await;
    }
}

/// A hash slot is migrating to another node: whichever keys have moved, each request is decided exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_requests() {
    let cluster = Cluster::start();
    let rules = [per_user(), rule("second", "{user}", "50/day", Algorithm::SlidingWindowLog)];
    let both = limiter(&cluster.url(), rules).await;
    let single = limiter(&cluster.url(), [per_user()]).await;
    let slot = cluster.slot_of("tollkeeper:{moving}0:user");
    let from = cluster.primary_of(slot);
    let to = *cluster.primaries().iter().find(|port| **port != from).unwrap();
    let mut asked = 0;
    let mut check = async |limiter: &Limiter| {
        let verdict = limiter.check(&Descriptor::new([("user", "moving")])).await.unwrap();
        asked += 1;
        let row = &verdict.rows()[0];
        assert_eq!((row.source, row.decision.remaining), (Source::Store, 100 - asked));
    };
    check(&both).await;
    cluster.begin_migration(slot, from, to);
    check(&both).await;
    check(&single).await;
    assert_eq!(cluster.move_keys(slot, 1), 1);
    // One key is on each node.
    for _ in 0..3 {
        check(&both).await;
        check(&single).await;
    }
    cluster.move_keys(slot, 100);
    check(&both).await;
    check(&single).await;
    cluster.finish_migration(slot, to);
    for _ in 0..3 {
        check(&both).await;
        check(&single).await;
    }
}

/// An estimate for several rules was decided by their failure policy while only some of the keys had moved that count their refunds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_estimates() {
    let cluster = Cluster::start();
    let rules = [per_user(), rule("second", "{user}", "50/day", Algorithm::TokenBucket)];
    let limiter = Arc::new(limiter(&cluster.url(), rules).await);
    let slot = cluster.slot_of("tollkeeper:{moving}0:user");
    let from = cluster.primary_of(slot);
    let to = *cluster.primaries().iter().find(|port| **port != from).unwrap();
    let mut used = 0;
    let mut reserve = async || {
        let (verdict, reservation) = limiter.reserve(&Descriptor::new([("user", "moving")])).await.unwrap();
        used += 1;
        let rows: Vec<_> = verdict.rows().iter().map(|row| (row.source, row.decision.remaining)).collect();
        assert_eq!(rows, [(Source::Store, 100 - used), (Source::Store, 50 - used)]);
        reservation
    };
    drop(reserve().await);
    cluster.begin_migration(slot, from, to);
    drop(reserve().await);
    while cluster.move_keys(slot, 1) == 1 {
        // Nothing is given back: the bucket and its refunds may not be on one node.
        drop(reserve().await);
    }
    cluster.finish_migration(slot, to);
    let refunded = reserve().await.settle(0).await.unwrap().rows.iter().map(|row| row.refunded).collect::<Vec<_>>();
    assert_eq!(refunded, [1, 1]);
}

/// One node hangs: its rules answer by their failure policy, those of other nodes are decided by the store as usual.
/// When it is back, it is found even if none of its keys is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_unreachable_concerns_only_its_rules() {
    let cluster = Cluster::start_with(15_000);
    let rules = [
        rule("user", "{user}", "3/day", Algorithm::TokenBucket),
        rule("tenant", "{tenant}", "100/day", Algorithm::FixedWindow),
    ];
    let limiter = limiter(&cluster.url(), rules).await;
    let owner =
        |value: &str, rule: &str| cluster.primary_of(cluster.slot_of(&format!("tollkeeper:{{{value}}}0:{rule}")));
    let tenant = "acme";
    let unreachable = owner(tenant, "tenant");
    let users: Vec<String> = (0..50).map(|nth| format!("user-{nth}")).collect();
    let users: Vec<&String> = users.iter().filter(|user| owner(user, "user") != unreachable).take(2).collect();
    let check = async |user: &str| limiter.check(&Descriptor::new([("user", user), ("tenant", tenant)])).await.unwrap();
    for _ in 0..3 {
        assert!(check(users[0]).await.is_allowed());
    }
    cluster.node(unreachable).pause();
    let mut admitted = 0;
    for _ in 0..20 {
        let verdict = check(users[0]).await;
        assert!(!verdict.is_allowed(), "its own limit is known and reached: {verdict:?}");
        let verdict = check(users[1]).await;
        assert_eq!(verdict.rows()[1].source, Source::Policy, "{verdict:?}");
        admitted += u32::from(verdict.is_allowed());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert_eq!(admitted, 3, "by the limit that can be reached");
    cluster.node(unreachable).resume();
    let tollkeeper::Store::Redis(store) = limiter.store() else { panic!("a Redis store") };
    for _ in 0..200 {
        if store.breaker() == tollkeeper::BreakerState::Closed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store.breaker(), tollkeeper::BreakerState::Closed, "nobody asked, and it is found all the same");
    comes_back(&limiter, users[1]).await;
}
