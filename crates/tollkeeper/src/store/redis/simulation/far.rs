//! Leases far from the server. In virtual time: on a busy machine replies arrive later than the network says, and leases
//! expire in the meantime.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use tollkeeper_core::{Descriptor, FailurePolicy, Policy, Rule, RuleSpec, Source};

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
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let counts = runtime.block_on(load(round_trip));
        let asked: usize = counts.iter().map(|each| each.asked).sum();
        let leased: usize = counts.iter().map(|each| each.leased).sum();
        assert!(leased * 100 >= asked * 95, "{round_trip} ms: {leased} of {asked} were leased");
        let mut waits: Vec<Duration> = counts.into_iter().flat_map(|each| each.waits).collect();
        waits.sort();
        let median = waits[waits.len() / 2];
        assert!(median < Duration::from_millis(1), "{round_trip} ms: half of the decisions took over {median:?}");
    }
}

/// 32 callers of one key for six seconds, each every 5 ms.
async fn load(round_trip: u64) -> Vec<Counts> {
    let host = "10.0.0.1:6379".to_string();
    let travel = Travel { least: round_trip / 2, jitter: 0 };
    let (network, _simulated) = Network::start(Chance::of(1), travel, 0);
    network.add_hosts(std::slice::from_ref(&host));
    let options = RedisOptions { deadline: Duration::from_secs(2), ..RedisOptions::default() };
    let store = RedisStore::connect(&format!("redis://{host}"), options).await.expect("nothing fails");
    let rule = Rule::new("far").key("{user}").limit("10,000/s").on_store_failure(FailurePolicy::Closed);
    let policy = Policy::new([RuleSpec { lease: Some("auto".into()), ..rule }]).expect("a valid rule");
    let limiter = Arc::new(Limiter::new(policy, store));
    let began = Instant::now();
    let callers: Vec<_> = (0..32).map(|_| tokio::spawn(call(limiter.clone(), began))).collect();
    let mut counts = Vec::new();
    for caller in callers {
        counts.push(caller.await.expect("no panic"));
    }
    counts
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
