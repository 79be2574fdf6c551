//! The Redis store against a real server: exact under load, by failure policy while the server is unreachable, and
//! exact again afterwards.

use std::sync::Arc;
use std::time::Duration;

use tollkeeper::{
    Algorithm, BreakerState, CheckError, ConnectError, Descriptor, Exception, ExceptionKind, FailurePolicy, Key,
    Limiter, Policy, RedisOptions, RedisStore, RuleSpec, Source, Store, Verdict,
};
use tollkeeper_testkit::store::{Kind, Server};

async fn connect(server: &Server) -> RedisStore {
    let options = RedisOptions { deadline: Duration::from_millis(200), ..RedisOptions::default() };
    RedisStore::connect(&server.url(), options).await.unwrap()
}

fn rule(name: &str, limit: &str, on_store_failure: FailurePolicy) -> RuleSpec {
    RuleSpec { name: name.into(), key: "{user}".into(), limit: limit.into(), on_store_failure, ..RuleSpec::default() }
}

fn user(name: &str) -> Descriptor {
    Descriptor::new([("user", name)])
}

/// What answered one request, and whether it passed. No caller may wait for long.
async fn ask(limiter: &Limiter, name: &str) -> (Source, bool) {
    let answer = tokio::time::timeout(Duration::from_secs(5), answered(limiter, &user(name))).await;
    let verdict = answer.expect("answers whatever the store does");
    (verdict.source(), verdict.is_allowed())
}

/// The answer to a request that is repeated while it is shed: a busy machine cannot tell at once whether it or the
/// server is late.
async fn answered(limiter: &Limiter, request: &Descriptor) -> Verdict {
    loop {
        let answer = limiter.check(request).await;
        if !is_shed(&answer) {
            return answer.unwrap();
        }
    }
}

fn is_shed(answer: &Result<Verdict, CheckError>) -> bool {
    matches!(answer, Err(CheckError::Overloaded(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_on_one_key_admit_exactly_the_limit() {
    let server = Server::start(Kind::Redis7);
    let rules = [rule("user", "100/day", FailurePolicy::Closed), rule("tenant", "1,000/day", FailurePolicy::Closed)];
    // Two limiters, as in two processes: they share only the server.
    let mut tasks = Vec::new();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let store = connect(&server).await;
        stores.push(store.clone());
        let limiter = Arc::new(Limiter::new(Policy::new(rules.clone()).unwrap(), store));
        for _ in 0..16 {
            let limiter = limiter.clone();
            tasks.push(tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..40 {
                    let verdict = limiter.check(&user("a")).await.unwrap();
                    assert!(!verdict.is_unavailable());
                    admitted += u32::from(verdict.is_allowed());
                }
                admitted
            }));
        }
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert_eq!(admitted, 100);
    let calls: u64 = stores.iter().map(|store| store.traffic().calls).sum();
    assert!(calls * 2 < 2 * 16 * 40, "{calls} calls: waiting ones go out together, and denials are remembered");
}

/// Of 1,000 charges by 20 callers of one key, up to 20 stayed although all were given back: refunds between the count of refunds
/// and the charge counted as later ones, and the charges of one call had no order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_requests_that_turn_out_not_to_count_leave_no_trace() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let rules = [rule("user", "1,000/day", FailurePolicy::Closed)];
        let mut limiters = Vec::new();
        for _ in 0..2 {
            let options = RedisOptions { deadline: Duration::from_secs(10), ..RedisOptions::default() };
            let store = RedisStore::connect(&server.url(), options).await.unwrap();
            limiters.push(Arc::new(Limiter::new(Policy::new(rules.clone()).unwrap(), store)));
        }
        // A bucket that owes more than it refills meanwhile gives all of a charge back.
        assert!(limiters[0].check(&user("a").with_cost(10)).await.unwrap().is_allowed());
        let state = || redis::cmd("GET").arg("tollkeeper:{a}0:user").query::<String>(&mut server.connect()).unwrap();
        let before = state();
        let callers = (0..20).map(|caller| {
            let limiter = limiters[caller % 2].clone();
            tokio::spawn(async move {
                for turn in 0..50 {
                    let (verdict, reservation) = limiter.reserve(&user("a")).await.unwrap();
                    assert!(verdict.is_allowed() && !reservation.is_empty());
                    tokio::time::sleep(Duration::from_micros((caller * 7 + turn * 13) as u64 % 5 * 300)).await;
                    reservation.give_back().await.unwrap();
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        let kept = 990 - limiters[0].inspect("user", "a").await.unwrap().unwrap()[0].decision.remaining;
        assert_eq!((state(), kept), (before, 0), "{kind:?}: what was charged and not given back");
    }
}

/// A server with `maxmemory-policy volatile-lru` had evicted the refunds of a bucket, and an estimate got back what had been refilled and
/// used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_refunds_of_its_bucket_an_estimate_gets_nothing_back() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let rules = [rule("user", "1,000/s", FailurePolicy::Closed)];
        let limiter = Arc::new(Limiter::new(Policy::new(rules).unwrap(), connect(&server).await));
        let (_, one) = limiter.reserve(&user("a").with_cost(900)).await.unwrap();
        let (_, other) = limiter.reserve(&user("a").with_cost(100)).await.unwrap();
        one.give_back().await.unwrap();
        let evicted: u32 = redis::cmd("DEL").arg("tollkeeper:r{a}0:user").query(&mut server.connect()).unwrap();
        assert_eq!(evicted, 1);
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert!(limiter.check(&user("a").with_cost(1_000)).await.unwrap().is_allowed());
        let refunded = other.settle(0).await.unwrap().rows[0].refunded;
        assert_eq!(refunded, 0, "{kind:?}: it was refilled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_the_script_is_taught_again() {
    let server = Server::start(Kind::Redis7);
    let limiter =
        Limiter::new(Policy::new([rule("r", "2/day", FailurePolicy::Closed)]).unwrap(), connect(&server).await);
    assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connect()).unwrap();
    assert_eq!(ask(&limiter, "a").await, (Source::Store, true));
    assert_eq!(ask(&limiter, "a").await, (Source::Store, false));
}

/// Only the scripts that decide were loaded at the start, so the first reservation on a distant server took two round
/// trips and was late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_call_of_every_script_finds_it_loaded() {
    let server = Server::start(Kind::Redis7);
    let window = RuleSpec { algorithm: Algorithm::SlidingWindowLog, ..rule("log", "9/day", FailurePolicy::Closed) };
    let slots = RuleSpec { algorithm: Algorithm::Concurrency, ..rule("slots", "9", FailurePolicy::Closed) };
    let rules = [rule("r", "9/day", FailurePolicy::Closed), window, slots.hold("60s")];
    let limiter = Arc::new(Limiter::new(Policy::new(rules).unwrap(), connect(&server).await));
    let (key, closed) = (Key { variant: 0, value: "a".into() }, "no failure policy answered");
    let verdict = answered(&limiter, &user("a")).await;
    assert_eq!((verdict.source(), verdict.is_allowed()), (Source::Store, true), "{closed}");
    let hold = verdict.rows().iter().find_map(|row| row.decision.hold).unwrap();
    assert!(limiter.release("slots", &key, hold).await.unwrap().unwrap());
    let (verdict, reservation) = limiter.reserve(&user("b")).await.unwrap();
    assert_eq!((verdict.source(), verdict.is_allowed()), (Source::Store, true), "{closed}");
    reservation.settle(0).await.unwrap();
    assert!(limiter.reset("r", &key).await.unwrap().unwrap());
    limiter.except(Exception::new("r", "a", ExceptionKind::Block)).await.unwrap();
    let stats: String = redis::cmd("INFO").arg("errorstats").query(&mut server.connect()).unwrap();
    assert!(!stats.contains("NOSCRIPT"), "{stats}");
}

/// On the server's own clock a state lives for as long as it matters, and memory follows what is owed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_ends_when_it_no_longer_matters() {
    let server = Server::start(Kind::Redis7);
    for algorithm in Algorithm::ALL {
        let spec = RuleSpec { algorithm, ..rule(algorithm.name(), "2/100s", FailurePolicy::Closed) };
        let limiter = Limiter::new(Policy::new([spec]).unwrap(), connect(&server).await);
        let verdict = limiter.check(&user("a")).await.unwrap();
        let reset_ms = verdict.rows()[0].decision.reset_after.as_millis_ceil() as i64;
        let key = format!("tollkeeper:{{a}}0:{algorithm}");
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut server.connect()).unwrap();
        assert!((reset_ms - 5_000..=reset_ms + 1).contains(&ttl), "{algorithm}: {ttl} ms to live, {reset_ms} to go");
    }
}

/// States that are written together were given their time to live one by one, together with their value. Now it is a command of its
/// own, and a number in a state is increased in place: neither may be forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_that_are_written_together_end_when_they_no_longer_matter() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let rules = [("bucket", Algorithm::TokenBucket), ("leaky", Algorithm::LeakyBucket)];
        for rules in [&rules[..1], &rules] {
            let specs = rules.iter().map(|(name, algorithm)| {
                let name = format!("{name}{}", rules.len());
                RuleSpec { algorithm: *algorithm, ..rule(&name, "100/1000s", FailurePolicy::Closed) }
            });
            let limiter = Arc::new(Limiter::new(Policy::new(specs).unwrap(), connect(&server).await));
            for times in 1..=3 {
                let ask = |nth: usize| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move { answered(&limiter, &user(&nth.to_string())).await })
                };
                for (nth, asked) in (0..50).map(ask).enumerate().collect::<Vec<_>>() {
                    for row in asked.await.unwrap().rows() {
                        assert_eq!(row.decision.remaining, 100 - times, "{kind:?}");
                        let reset_ms = row.decision.reset_after.as_millis_ceil() as i64;
                        let key = format!("tollkeeper:{{{nth}}}0:{}", row.charge.rule.name());
                        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut server.connect()).unwrap();
                        assert!(
                            (reset_ms - 5_000..=reset_ms + 2).contains(&ttl),
                            "{kind:?} {key}: {ttl} of {reset_ms}"
                        );
                    }
                }
            }
        }
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connect()).unwrap();
        for command in ["mset", "incrby", "pexpireat"] {
            assert!(stats.contains(&format!("cmdstat_{command}:")), "{kind:?}: {command} was not used: {stats}");
        }
    }
}

/// Killed, hung, and back: each rule answers by its own failure policy in between, and by the store again afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_answer_by_their_policy_while_the_server_is_unreachable() {
    let mut server = Server::start(Kind::Redis7);
    let limiter =
        |policy, store: &RedisStore| Limiter::new(Policy::new([rule("r", "3/day", policy)]).unwrap(), store.clone());
    let store = connect(&server).await;
    let open = limiter(FailurePolicy::Open, &store);
    let closed = limiter(FailurePolicy::Closed, &store);
    let local = limiter(FailurePolicy::Local, &store);
    assert_eq!(ask(&closed, "a").await, (Source::Store, true));

    for hang in [true, false] {
        if hang {
            server.pause()
        } else {
            server.kill()
        }
        for _ in 0..8 {
            assert_eq!(ask(&open, "a").await, (Source::Policy, true));
            assert_eq!(ask(&closed, "a").await, (Source::Policy, false));
        }
        assert_ne!(store.breaker(), BreakerState::Closed);
        // Decided in this process, and exactly: the second outage continues with what the first one used.
        let expected = if hang { [true, true, true, false] } else { [false; 4] };
        for allowed in expected {
            assert_eq!(ask(&local, "b").await, (Source::Local, allowed));
        }
        if hang {
            server.resume()
        } else {
            server.restart()
        }
        comes_back(&open).await;
    }
}

/// Hung, killed and back under load, with and without leases: no caller waits for long, and afterwards limits are
/// exact again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_nobody_waits_for_an_unreachable_server() {
    const DEADLINE: Duration = Duration::from_millis(250);
    let mut server = Server::start(Kind::Redis7);
    let options = RedisOptions { deadline: DEADLINE, ..RedisOptions::default() };
    let store = RedisStore::connect(&server.url(), options).await.unwrap();
    let leased = RuleSpec { lease: Some("auto".into()), ..rule("leased", "1,000,000/s", FailurePolicy::Open) };
    let exact = RuleSpec { key: "{exact}".into(), ..rule("exact", "100/day", FailurePolicy::Open) };
    let rules = [rule("plain", "10,000,000/day", FailurePolicy::Open), leased, exact];
    let limiter = Arc::new(Limiter::new(Policy::new(rules).unwrap(), store.clone()));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let callers: Vec<_> = (0..32)
        .map(|nth| {
            let (limiter, stop) = (limiter.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut longest, mut failed) = (Duration::ZERO, 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let asked = std::time::Instant::now();
                    let answer = limiter.check(&user(&format!("load-{}", nth % 4))).await;
                    longest = longest.max(asked.elapsed());
                    failed += u32::from(!is_shed(&answer) && answer.unwrap().is_degraded());
                    tokio::task::yield_now().await;
                }
                (longest, failed)
            })
        })
        .collect();
    for hang in [true, false] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if hang {
            server.pause()
        } else {
            server.kill()
        }
        tokio::time::sleep(4 * DEADLINE).await;
        if hang {
            server.resume()
        } else {
            server.restart()
        }
        comes_back(&limiter).await;
        // Half-open, it lets one caller at a time ask.
        while store.breaker() != BreakerState::Closed {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut admitted = 0;
    let afterwards = Descriptor::new([("user", "afterwards"), ("exact", "afterwards")]);
    for _ in 0..150 {
        let verdict = answered(&limiter, &afterwards).await;
        assert!(!verdict.is_degraded(), "{verdict:?}");
        admitted += u32::from(verdict.is_allowed());
    }
    assert_eq!(admitted, 100);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for caller in callers {
        let (longest, failed) = caller.await.unwrap();
        // Twice the deadline, and some for a busy machine: not ten of them, as when each attempt waits again.
        assert!(longest < 8 * DEADLINE, "somebody waited for {longest:?}");
        assert!(failed > 0, "the server was unreachable");
    }
}

/// Waits until the store answers again.
async fn comes_back(limiter: &Limiter) {
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if ask(limiter, "c").await.0 == Source::Store {
            return;
        }
    }
    panic!("it never came back");
}

/// A password that was wrong for a moment left an error in the connection, which every later call got again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_wrong_for_a_moment_is_tried_again() {
    let server = Server::start(Kind::Redis7);
    // A connection opened before there was a password keeps its rights.
    let mut admin = server.connect();
    let mut admin = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).exec(&mut admin).unwrap();
    admin(&["CONFIG", "SET", "requirepass", "right"]);
    let url = format!("redis://:right@127.0.0.1:{}/", server.port());
    let options = RedisOptions { deadline: Duration::from_millis(200), ..RedisOptions::default() };
    let store = RedisStore::connect(&url, options).await.unwrap();
    let limiter = Limiter::new(Policy::new([rule("r", "3/day", FailurePolicy::Open)]).unwrap(), store.clone());
    assert_eq!(ask(&limiter, "a").await.0, Source::Store);
    admin(&["CONFIG", "SET", "requirepass", "other"]);
    admin(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    while store.breaker() == BreakerState::Closed {
        ask(&limiter, "a").await;
    }
    admin(&["CONFIG", "SET", "requirepass", "right"]);
    comes_back(&limiter).await;
}

/// A connection that went silent without closing (forgotten by a firewall) was kept forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_went_silent_is_replaced() {
    let server = Server::start(Kind::Redis7);
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", proxy.local_addr().unwrap());
    let (silence, silent) = tokio::sync::watch::channel(false);
    let port = server.port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = proxy.accept().await.unwrap();
            let mut upstream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            // Connections made while it is silent are served; earlier ones are not, and not closed.
            let (mut silent, began) = (silent.clone(), *silent.borrow());
            tokio::spawn(async move {
                let stalled = silent.wait_for(|silent| *silent && !began);
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => return,
                    _ = stalled => {}
                }
                std::future::pending::<()>().await;
            });
        }
    });
    let options = RedisOptions { deadline: Duration::from_millis(100), ..RedisOptions::default() };
    let store = RedisStore::connect(&url, options).await.unwrap();
    let limiter = Limiter::new(Policy::new([rule("r", "3/day", FailurePolicy::Open)]).unwrap(), store);
    assert_eq!(ask(&limiter, "a").await.0, Source::Store);
    silence.send(true).unwrap();
    assert_eq!(ask(&limiter, "a").await.0, Source::Policy);
    comes_back(&limiter).await;
}

#[tokio::test]
async fn what_cannot_decide_is_refused_at_the_door() {
    let primary = Server::start(Kind::Redis7);
    let replica = Server::start_with(Kind::Redis7, |_| {
        vec!["--replicaof".into(), "127.0.0.1".into(), primary.port().to_string()]
    });
    let refused =
        |url: String| async move { RedisStore::connect(&url, RedisOptions::default()).await.map(Store::from) };
    assert!(matches!(refused(replica.url()).await, Err(ConnectError::Replica)));
    assert!(matches!(refused("redis//nowhere".into()).await, Err(ConnectError::Url(_))));
    assert!(matches!(refused("redis://127.0.0.1:1/".into()).await, Err(ConnectError::Connect(_))));

    let mut admin = primary.connect();
    redis::cmd("ACL")
        .arg(&["SETUSER", "limited", "on", ">secret", "~*", "+@all", "-@scripting"])
        .exec(&mut admin)
        .unwrap();
    let error = refused(format!("redis://limited:secret@127.0.0.1:{}/", primary.port())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Scripts(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");

    // The rights named in the guide are enough, and a missing one is reported at the start, not later.
    let enough = ["+@scripting", "+@string", "+@list", "+@sortedset", "+@keyspace", "+@connection", "+time", "+info"];
    for missing in ["", "+@string", "+@list", "+@keyspace", "+time"] {
        let allowed = enough.iter().filter(|one| **one != missing);
        redis::cmd("ACL")
            .arg(&["SETUSER", "narrow", "reset", "on", ">secret", "~tollkeeper:*", "-@all"])
            .arg(allowed.copied().collect::<Vec<_>>())
            .exec(&mut admin)
            .unwrap();
        let connected = refused(format!("redis://narrow:secret@127.0.0.1:{}/", primary.port())).await;
        match missing {
            "" => assert!(connected.is_ok(), "{connected:?}"),
            _ => assert!(matches!(connected, Err(ConnectError::Permission(_))), "{missing}: {connected:?}"),
        }
    }
}
