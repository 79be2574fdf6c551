//! What the Redis store decides without a call: cached denials, leased tokens, and each instance's share while the
//! server is unreachable.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tollkeeper::{
    Ahead, Algorithm, Descriptor, Exception, ExceptionKind, FailurePolicy, Limiter, Policy, RedisOptions, RedisStore,
    RuleSpec, Source, Store,
};
use tollkeeper_testkit::Distance;
use tollkeeper_testkit::store::{Kind, Server};

async fn connect(server: &Server) -> RedisStore {
    let options = RedisOptions { deadline: Duration::from_secs(2), ..RedisOptions::default() };
    RedisStore::connect(&server.url(), options).await.unwrap()
}

fn rule(name: &str, limit: &str) -> RuleSpec {
    RuleSpec {
        name: name.into(),
        key: "{user}".into(),
        limit: limit.into(),
        on_store_failure: FailurePolicy::Closed,
        ..RuleSpec::default()
    }
}

fn leased(name: &str, limit: &str, lease: &str) -> RuleSpec {
    RuleSpec { lease: Some(lease.into()), ..rule(name, limit) }
}

fn user(name: &str) -> Descriptor {
    Descriptor::new([("user", name)])
}

async fn ask(limiter: &Limiter, name: &str) -> (Source, bool) {
    let verdict = limiter.check(&user(name)).await.unwrap();
    (verdict.source(), verdict.is_allowed())
}

fn redis(limiter: &Limiter) -> &RedisStore {
    match limiter.store() {
        Store::Redis(redis) => redis,
        other => panic!("{other:?}"),
    }
}

/// How many tokens came back since then, at one in so many milliseconds: a busy machine takes seconds.
fn refilled(began: Instant, every_ms: u128) -> u32 {
    (began.elapsed().as_millis() / every_ms) as u32 + 1
}

/// Calls made, not counting heartbeats.
fn calls(limiter: &Limiter) -> u64 {
    redis(limiter).traffic().calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hammers_a_limit_costs_the_server_nothing() {
    let server = Server::start(Kind::Redis7);
    let policy = Policy::new([rule("narrow", "2/h"), rule("wide", "100/h")]).unwrap();
    let limiter = Limiter::new(policy, connect(&server).await);
    for _ in 0..2 {
        assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
    }
    assert_eq!(ask(&limiter, "a").await, (Source::Store, false));
    let before = calls(&limiter);
    let first = limiter.check(&user("a")).await.unwrap();
    for _ in 0..2_000 {
        ask(&limiter, "a").await;
    }
    // At most one call a second; the loop may take that long on a busy machine.
    assert!(calls(&limiter) - before < 10);
    assert_eq!(first.source(), Source::DenyCache);
    assert_eq!(first.limiting().unwrap().charge.rule.name(), "narrow");
    let row = |nth: usize| (first.rows()[nth].decision.is_allowed(), first.rows()[nth].decision.remaining);
    assert_eq!((row(0), row(1)), ((false, 0), (true, 98)), "each rule says what it said");
    assert!(ask(&limiter, "b").await.1, "others are not concerned");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remembered_denial_ends_when_it_said_that_it_would() {
    let server = Server::start(Kind::Redis7);
    let limiter = Limiter::new(Policy::new([rule("r", "1/300ms")]).unwrap(), connect(&server).await);
    let mut admitted_at = Instant::now();
    assert!(ask(&limiter, "a").await.1);
    let mut remembered = 0;
    for _ in 0..5 {
        let denied = limiter.check(&user("a")).await.unwrap();
        let again = limiter.check(&user("a")).await.unwrap();
        // On a busy machine the token may be back already.
        if admitted_at.elapsed() >= Duration::from_millis(300) && (denied.is_allowed() || again.is_allowed()) {
            admitted_at = Instant::now();
            continue;
        }
        assert!(!denied.is_allowed(), "just admitted one");
        let wait = again.retry_after().unwrap();
        assert!(wait <= denied.retry_after().unwrap());
        remembered += u32::from(again.source() == Source::DenyCache);
        let waited_from = Instant::now();
        tokio::time::sleep(wait.as_duration()).await;
        admitted_at = Instant::now();
        assert_eq!(ask(&limiter, "a").await, (Source::Store, true), "waited as told, {:?}", waited_from.elapsed());
    }
    assert!(remembered > 0);
}

/// Hosts with an event loop ask this before they wait: it must charge exactly what it answers, and nothing if it has no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_no_call_is_decided_on_the_callers_thread() {
    let server = Server::start(Kind::Redis7);
    let policy = Policy::new([rule("narrow", "2/h")]).unwrap();
    let limiter = Limiter::new(policy, connect(&server).await);
    let Ahead::Open(charges) = limiter.check_ahead(&user("a")).unwrap() else { panic!("nothing is known of `a`") };
    for remaining in [1, 0] {
        let verdict = limiter.check_charges(charges.clone()).await.unwrap();
        assert_eq!((verdict.is_allowed(), verdict.rows()[0].decision.remaining), (true, remaining));
    }
    assert!(matches!(limiter.check_ahead(&user("a")).unwrap(), Ahead::Open(_)), "no denial is known yet");
    assert!(!ask(&limiter, "a").await.1);
    let Ahead::Decided(denied) = limiter.check_ahead(&user("a")).unwrap() else {
        panic!("the denial holds for a while")
    };
    assert_eq!((denied.source(), denied.is_allowed()), (Source::DenyCache, false));
    limiter.except(Exception::new("narrow", "a", ExceptionKind::Allow)).await.unwrap();
    assert!(matches!(limiter.check_ahead(&user("a")).unwrap(), Ahead::Open(_)), "an exception is not ignored");
    assert!(ask(&limiter, "a").await.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_tokens_are_spent_on_the_callers_thread_and_never_twice() {
    let server = Server::start(Kind::Redis7);
    let limiter = Limiter::new(Policy::new([leased("hot", "1000/h", "100")]).unwrap(), connect(&server).await);
    let (mut passed, mut ahead) = (0, 0);
    for _ in 0..3_000 {
        let verdict = match limiter.check_ahead(&user("a")).unwrap() {
            Ahead::Decided(verdict) => {
                ahead += 1;
                verdict
            }
            Ahead::Open(charges) => limiter.check_charges(charges).await.unwrap(),
        };
        passed += u32::from(verdict.is_allowed());
    }
    // A token refills every 3.6 seconds, and the loop may take that long on a busy machine.
    assert!((1_000..1_100).contains(&passed), "{passed} of 1000 passed");
    assert!(ahead > 1_500, "{ahead} of 3000 took no call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_and_new_rules_end_remembered_denials() {
    let server = Server::start(Kind::Redis7);
    let window = |limit| RuleSpec { algorithm: Algorithm::SlidingWindowLog, ..rule("r", limit) };
    let limiter = Limiter::new(Policy::new([window("1/day")]).unwrap(), connect(&server).await);
    assert!(ask(&limiter, "a").await.1);
    assert!(!ask(&limiter, "a").await.1);
    assert!(limiter.reset("r", &"a".into()).await.unwrap().unwrap());
    assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
    assert!(!ask(&limiter, "a").await.1);
    limiter.replace_policy(Policy::new([window("2/day")]).unwrap());
    assert_eq!(ask(&limiter, "a").await, (Source::Store, true), "one more is allowed now");
}

/// The answer to a request came after a reset that followed it, and the key was denied for up to a second more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_from_before_a_reset_is_not_remembered_after_it() {
    let server = Server::start(Kind::Redis7);
    // So far away that no answer comes at once.
    let distance = Distance::to(server.port(), Duration::from_millis(30));
    let options = RedisOptions { deadline: Duration::from_secs(2), ..RedisOptions::default() };
    let store = RedisStore::connect(&distance.url(), options).await.unwrap();
    let limiter = Limiter::new(Policy::new([rule("r", "1/h")]).unwrap(), store);
    assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
    let mut early = pin!(ask(&limiter, "a"));
    assert!(poll_fn(|context| Poll::Ready(early.as_mut().poll(context))).await.is_pending());
    assert!(limiter.reset("r", &"a".into()).await.unwrap().unwrap());
    assert_eq!(early.await, (Source::Store, false));
    assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
}

/// Most requests are decided locally; leased tokens are counted, and returned when they are no longer needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_tokens_save_calls_and_go_back_when_idle() {
    let server = Server::start(Kind::Redis7);
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindowCounter] {
        for lease in ["auto", "500"] {
            let rule = RuleSpec { algorithm, ..leased(&format!("{algorithm}-{lease}"), "100,000/day", lease) };
            let name = rule.name.clone();
            let limiter = Limiter::new(Policy::new([rule]).unwrap(), connect(&server).await);
            let began = Instant::now();
            let most = || 92_000 + refilled(began, 864);
            let mut by_lease = 0;
            for _ in 0..8_000 {
                let (source, is_allowed) = ask(&limiter, "a").await;
                assert!(is_allowed);
                by_lease += u32::from(source == Source::Lease);
            }
            assert!(by_lease > 6_000, "{name}: only {by_lease} of 8,000 were leased");
            assert!(calls(&limiter) < 2_500, "{name}: {} calls", calls(&limiter));
            let left = async || limiter.inspect(&name, "a").await.unwrap().unwrap()[0].decision.remaining;
            assert!(left().await <= most(), "{name}: what was spent had been taken");
            for _ in 0..1_000 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if redis(&limiter).leased_tokens() == 0 && left().await >= 91_990 {
                    break;
                }
            }
            assert_eq!(redis(&limiter).leased_tokens(), 0, "{name}");
            // A bucket may be short of the token that was just expiring.
            let left = left().await;
            assert!((91_990..=most()).contains(&left), "{name}: {left} left");
        }
    }
}

/// The last tokens are still shared: leases shrink with what is left, and no token is given out twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_shrink_as_the_bucket_empties() {
    let server = Server::start(Kind::Redis7);
    let mut limiters = Vec::new();
    for _ in 0..3 {
        let policy = Policy::new([leased("r", "3,000/day", "1,000")]).unwrap();
        limiters.push(Arc::new(Limiter::new(policy, connect(&server).await)));
    }
    let (began, mut tasks) = (Instant::now(), Vec::new());
    for limiter in &limiters {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            let (mut admitted, mut most_out) = (0, 0);
            for nth in 0..4_000 {
                admitted += u32::from(ask(&limiter, "a").await.1);
                most_out = most_out.max(redis(&limiter).leased_tokens());
                // Leased tokens are spent in milliseconds: on a busy machine two had spent all before the third's first answer came.
                if nth % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::task::yield_now().await;
            }
            (admitted, most_out)
        }));
    }
    let mut shares = Vec::new();
    for task in tasks {
        let (admitted, most_out) = task.await.unwrap();
        assert!(most_out <= 1_500, "a lease of 1,000 is taken when fewer than half are left");
        shares.push(admitted);
    }
    let total: u32 = shares.iter().sum();
    assert!(total <= 3_000 + refilled(began, 28_800) && total > 2_900, "{shares:?}");
    assert!(shares.iter().all(|share| *share > 100), "nobody starves: {shares:?}");
}

/// A leased rule beside one without leases: all or nothing holds for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_by_another_rule_spends_no_lease() {
    let server = Server::start(Kind::Redis7);
    let global = RuleSpec { key: "global".into(), ..leased("global", "100,000/day", "1,000") };
    let limiter = Limiter::new(Policy::new([global, rule("user", "50/day")]).unwrap(), connect(&server).await);
    let (began, mut admitted) = (Instant::now(), 0);
    for nth in 0..200 {
        let verdict = limiter.check(&user(if nth % 2 == 0 { "a" } else { "b" })).await.unwrap();
        admitted += u32::from(verdict.is_allowed());
        if !verdict.is_allowed() {
            assert_eq!(verdict.limiting().unwrap().charge.rule.name(), "user");
        }
    }
    assert_eq!(admitted, 100);
    redis(&limiter).return_leases().await;
    let left = limiter.inspect("global", "global").await.unwrap().unwrap()[0].decision.remaining;
    assert!((99_898..=99_900 + refilled(began, 864)).contains(&left), "{left}");
}

/// Instances learn of each other, and while the server is unreachable each admits its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_unreachable_each_instance_admits_its_share() {
    let mut server = Server::start(Kind::Redis7);
    let mut limiters = Vec::new();
    for _ in 0..3 {
        let local = RuleSpec { on_store_failure: FailurePolicy::Local, ..rule("r", "30/day") };
        limiters.push(Limiter::new(Policy::new([local]).unwrap(), connect(&server).await));
    }
    let started = Instant::now();
    while limiters.iter().any(|limiter| redis(limiter).instances() != 3) {
        assert!(started.elapsed() < Duration::from_secs(10), "they do not find each other");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.kill();
    for limiter in &limiters {
        let mut admitted = 0;
        for _ in 0..40 {
            let (source, is_allowed) = ask(limiter, "a").await;
            assert_eq!(source, Source::Local);
            admitted += u32::from(is_allowed);
        }
        assert_eq!(admitted, 10, "a third of thirty");
    }
}

/// Redis flapped and came back empty. Three instances counted 1, 2 and 3, and admitted 110 requests a second of 60 when it
/// went down again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_leaves_each_instance_its_share() {
    let mut server = Server::start(Kind::Redis7);
    let mut limiters = Vec::new();
    for _ in 0..3 {
        let local = RuleSpec { on_store_failure: FailurePolicy::Local, ..rule("r", "30/day") };
        limiters.push(Limiter::new(Policy::new([local]).unwrap(), connect(&server).await));
    }
    let wait_until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(20), "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let all_know = |count: u32| limiters.iter().all(|limiter| redis(limiter).sharers() == count);
    wait_until("they find each other", &|| all_know(3)).await;
    for times in 1..=2 {
        server.kill();
        server.restart();
        wait_until("each notices the loss", &|| {
            assert!(all_know(3), "{:?}", limiters.iter().map(|one| redis(one).sharers()).collect::<Vec<_>>());
            limiters.iter().all(|limiter| redis(limiter).losses() == times)
        })
        .await;
    }
    server.kill();
    for limiter in &limiters {
        let mut admitted = 0;
        for _ in 0..40 {
            let (source, is_allowed) = ask(limiter, "a").await;
            assert_eq!(source, Source::Local);
            admitted += u32::from(is_allowed);
        }
        assert_eq!(admitted, 10, "a third of thirty");
    }
}

/// One that vanished may be cut off and deciding by itself, so its share stays reserved; one that has left frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_keeps_its_share_until_it_leaves() {
    let server = Server::start(Kind::Redis7);
    let [stays, leaves, vanishes] = [connect(&server).await, connect(&server).await, connect(&server).await];
    let until = async |is_so: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(20), "{} of {}", stays.instances(), stays.sharers());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    until(&|| stays.instances() == 3).await;
    drop(vanishes);
    until(&|| stays.instances() == 2).await;
    assert_eq!(stays.sharers(), 3);
    leaves.leave().await;
    until(&|| stays.sharers() == 2).await;
}

/// A request denied by another rule returns its leased tokens, whatever other instances took from the bucket in
/// between. Tokens that are not in the store are held by some instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_requests_lose_no_tokens_of_leased_rules() {
    let server = Server::start(Kind::Redis7);
    for (algorithm, lease) in
        [(Algorithm::TokenBucket, "auto"), (Algorithm::Gcra, "100"), (Algorithm::FixedWindow, "100")]
    {
        let name = format!("{algorithm}-{lease}");
        let global = RuleSpec { key: "global".into(), algorithm, ..leased(&name, "20,000/day", lease) };
        let policy = || Policy::new([global.clone(), rule("user", "20/day")]).unwrap();
        let limiters = [
            Arc::new(Limiter::new(policy(), connect(&server).await)),
            Arc::new(Limiter::new(policy(), connect(&server).await)),
        ];
        let (began, mut tasks) = (Instant::now(), Vec::new());
        for nth in 0..16 {
            let limiter = limiters[nth % 2].clone();
            tasks.push(tokio::spawn(async move {
                let mut admitted = 0;
                for round in 0..100 {
                    // Usually more than a user ever gets.
                    let cost = if round % 10 == 0 { 2 } else { 21 };
                    let request = user(&format!("{nth}-{round}")).with_cost(cost);
                    admitted += u32::from(limiter.check(&request).await.unwrap().is_allowed()) * cost;
                }
                admitted
            }));
        }
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert_eq!(admitted, 16 * 10 * 2);
        let held = || limiters.iter().map(|limiter| redis(limiter).leased_tokens() as u32).sum::<u32>();
        let left = async || limiters[0].inspect(&name, "global").await.unwrap().unwrap()[0].decision.remaining;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let (left, held) = (left().await, held());
        // A bucket may be short of the tokens that are just expiring.
        let accounted = admitted + left + held;
        let most = 20_000 + refilled(began, 4_320);
        assert!((19_990..=most).contains(&accounted), "{name}: {admitted} + {left} left + {held} held");
    }
}
