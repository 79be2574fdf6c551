//! Leases of a key that many callers ask for. In virtual time: on a busy machine replies arrive later than the network says,
//! and leases expire in the meantime.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use tollkeeper_core::{Algorithm, Descriptor, FailurePolicy, Policy, Rule, RuleSpec, Source};

use crate::limiter::Limiter;
use crate::store::redis::link::simulated::chance::Chance;
use crate::store::redis::link::simulated::network::{Network, Travel};
use crate::store::redis::{RedisOptions, RedisStore};

/// What one caller met.
#[derive(Default)]
struct Counts {
    asked: usize,
    leased: usize,
    waits: Vec<Duration>,
}

/// 80 ms from Redis, `lease: auto` was 7 times slower than no lease: leases covered 10 ms of demand and had expired
/// before they arrived, and every request waited for several of them.
#[test]
fn far_from_the_server_most_decisions_come_from_leases_at_once() {
    for round_trip in [10, 40, 80] {
        let (counts, _) = load(round_trip, 32, Algorithm::TokenBucket);
        let asked: usize = counts.iter().map(|each| each.asked).sum();
        let leased: usize = counts.iter().map(|each| each.leased).sum();
        assert!(leased * 100 >= asked * 95, "{round_trip} ms: {leased} of {asked} were leased");
        let mut waits: Vec<Duration> = counts.into_iter().flat_map(|each| each.waits).collect();
        waits.sort();
        let median = waits[waits.len() / 2];
        assert!(median < Duration::from_millis(1), "{round_trip} ms: half of the decisions took over {median:?}");
    }
}

/// A hot key was leased for about a hundred times a second, since leases covered 10 ms of demand; the calls cost more CPU than
/// the decisions.
#[test]
fn a_hot_key_needs_few_calls() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow] {
        let (counts, calls) = load(0, 32, algorithm);
        let asked: usize = counts.iter().map(|each| each.asked).sum();
        assert!(calls * 250 <= asked as u64, "{algorithm}: {calls} calls for {asked} requests");
    }
}

/// This many callers of one key for six seconds, each every 5 ms. Also says how many calls the server had.
fn load(round_trip: u64, callers: usize, algorithm: Algorithm) -> (Vec<Counts>, u64) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let host = "10.0.0.1:6379".to_string();
        let travel = Travel { least: round_trip / 2, jitter: 0 };
        let (network, _simulated) = Network::start(Chance::of(1), travel, 0);
        network.add_hosts(std::slice::from_ref(&host));
        let options = RedisOptions { deadline: Duration::from_secs(2), ..RedisOptions::default() };
        let store = RedisStore::connect(&format!("redis://{host}"), options).await.expect("nothing fails");
        let limit = if algorithm == Algorithm::FixedWindow { "10,000,000/day" } else { "10,000/s" };
        let rule = Rule::new("hot").key("{user}").limit(limit).algorithm(algorithm);
        let rule = RuleSpec { lease: Some("auto".into()), ..rule.on_store_failure(FailurePolicy::Closed) };
        let limiter = Arc::new(Limiter::new(Policy::new([rule]).expect("a valid rule"), store));
        let (began, before) = (Instant::now(), network.calls());
        let callers: Vec<_> = (0..callers).map(|_| tokio::spawn(call(limiter.clone(), began))).collect();
        let mut counts = Vec::new();
        for caller in callers {
            counts.push(caller.await.expect("no panic"));
        }
        (counts, network.calls() - before)
    })
}

async fn call(limiter: Arc<Limiter>, began: Instant) -> Counts {
    let mut counts = Counts::default();
    while began.elapsed() < Duration::from_secs(6) {
        let asked_at = Instant::now();
        let verdict = limiter.check(&Descriptor::new([("user", "one")])).await.expect("the server is fine");
        assert!(verdict.is_allowed() && !verdict.is_degraded());
        counts.waits.push(asked_at.elapsed());
        counts.asked += 1;
        counts.leased += usize::from(verdict.source() == Source::Lease);
        sleep(Duration::from_millis(5)).await;
    }
    counts
}
