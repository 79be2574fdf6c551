//! Deterministic simulation: many instances over a network and servers that exist only in this test, in virtual time.
//!
//! The limiter, the store (queues, batches, leases, cached denials, breaker, reservations) and its Lua scripts are the
//! real ones; the connection below them leads to simulated servers (`link/simulated`). A seed decides everything else:
//! how far the servers are, what clients ask and when, which task runs first, what fails. So a run that breaks a law is
//! one number, and replays exactly:
//!
//! ```text
//! TOLLKEEPER_SIMULATION_SEED=42 cargo test -p tollkeeper --all-features --lib simulation -- --nocapture
//! TOLLKEEPER_SIMULATION_RUNS=20000 cargo test -p tollkeeper --all-features --lib simulation
//! ```
//!
//! The laws are in `ledger.rs`. Decision 19 says why none of the existing frameworks is used, and which bugs were put
//! in by hand to see whether this finds them.

mod clients;
mod leased;
mod ledger;
mod plan;
mod standstill;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};
use tollkeeper_core::Policy;

use super::RedisStore;
use super::link::simulated::chance::Chance;
use super::link::simulated::network::Network;
use super::link::simulated::shuffled;
use super::options::RedisOptions;
use crate::limiter::Limiter;
use crate::store::MemoryStore;
use clients::Client;
use ledger::Ledger;
use plan::{Fault, Plan};

/// What a run did.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// Of everything that happened, in order.
    trace: u64,
    requests: u64,
    calls: u64,
    broken: Vec<String>,
}

/// Runs a seed to its end.
fn run(seed: u64, is_shown: bool) -> Run {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut chance = Chance::of(seed);
        let plan = Plan::draw(&mut chance);
        let (network, _simulated) = Network::start(Chance::of(chance.next()), plan.travel, plan.shuffle);
        network.add_hosts(&plan.hosts);
        let ledger = Ledger::new(network.clone(), is_shown);
        ledger.note(&format!("{plan:?}"));
        let mut instances = Vec::new();
        for _ in 0..plan.instances {
            instances.push(connect(&plan, &network).await);
        }
        // By then they know of each other, by their heartbeats, and have their shares of `local`.
        sleep(Duration::from_millis(2_500)).await;
        let mut tasks = Vec::new();
        for number in 0..plan.clients {
            let limiter = instances[number % instances.len()].clone();
            let client = Client::new(number, limiter, ledger.clone(), Chance::of(chance.next()), &plan);
            tasks.push(tokio::spawn(shuffled(client.live())));
        }
        let begun = Instant::now();
        for (at, fault) in &plan.faults {
            sleep((begun + *at).saturating_duration_since(Instant::now())).await;
            ledger.note(&format!("{fault:?}"));
            cause(&network, fault, &ledger).await;
        }
        for task in tasks {
            if let Err(error) = task.await {
                ledger.broke(format!("a client ended with {error}"));
            }
        }
        // Long enough for breakers to close and for slots to expire.
        sleep(Duration::from_secs(8)).await;
        for limiter in &instances {
            if let crate::store::Store::Redis(redis) = limiter.store() {
                redis.return_leases().await;
                ledger.leased(redis.leased_tokens());
            }
        }
        let judge = connect(&plan, &network).await;
        ledger.judge(&plan, &judge).await;
        network.trouble().into_iter().for_each(|trouble| ledger.broke(trouble));
        let calls = network.calls();
        Run { trace: ledger.trace(), requests: ledger.requests(), calls, broken: ledger.broken() }
    })
}

async fn connect(plan: &Plan, network: &Network) -> Arc<Limiter> {
    let options = RedisOptions { deadline: plan.deadline, ..RedisOptions::default() };
    let store = RedisStore::connect(&plan.url(), options).await.expect("nothing fails yet, or any more");
    let limiter = Limiter::new(Policy::new(plan::rules()).expect("valid rules"), store);
    Arc::new(limiter.with_local_store(MemoryStore::with(1_000, network.clock())))
}

/// Each fault ends by itself.
async fn cause(network: &Arc<Network>, fault: &Fault, ledger: &Ledger) {
    match fault {
        Fault::Cut { host } => network.cut(host),
        Fault::Stall { host, pause } => network.stall(host, *pause),
        Fault::Mood { host, mood, pause } => {
            network.set_mood(host, *mood);
            let (network, host, pause) = (network.clone(), host.clone(), *pause);
            tokio::spawn(async move {
                sleep(pause).await;
                network.set_mood(&host, Default::default());
            });
        }
        Fault::Full { host, pause } => {
            network.set_full(host, true);
            let (network, host, pause) = (network.clone(), host.clone(), *pause);
            tokio::spawn(async move {
                sleep(pause).await;
                network.set_full(&host, false);
            });
        }
        Fault::Restart { host, pause, keeps_data } => {
            network.stop(host);
            if !keeps_data {
                ledger.forgotten();
            }
            let (network, host, pause, keeps_data) = (network.clone(), host.clone(), *pause, *keeps_data);
            tokio::spawn(async move {
                sleep(pause).await;
                network.restart(&host, keeps_data);
            });
        }
        Fault::Step { host, by_ms } => {
            network.step_clock(host, *by_ms);
            ledger.stepped(*by_ms);
        }
        Fault::Move { key, pause } => {
            if network.begin_move(key) {
                ledger.moved();
                let (network, ledger, pause) = (network.clone(), ledger.clone(), *pause);
                tokio::spawn(async move {
                    sleep(pause).await;
                    network.end_move();
                    ledger.moved();
                });
            }
        }
        Fault::Failover { host, lag, pause } => {
            if let Some(replica) = network.replica(host) {
                ledger.forgotten();
                let (network, host, lag, pause) = (network.clone(), host.clone(), *lag, *pause);
                tokio::spawn(async move {
                    sleep(lag).await;
                    network.stop(&host);
                    sleep(pause).await;
                    network.promote(&host, replica);
                });
            }
        }
        // The whole process stands still: every timer is late.
        Fault::Standstill { pause } => tokio::time::advance(*pause).await,
    }
}

/// The seeds of this run: one that is named, or as many as are wanted.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("TOLLKEEPER_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TOLLKEEPER_SIMULATION_RUNS").unwrap_or(200),
    }
}

#[test]
fn every_seed_keeps_the_laws() {
    let (seeds, next) = (seeds(), AtomicU64::new(seeds().start));
    let is_shown = seeds.end - seeds.start == 1;
    let (requests, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        let worker = || loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return;
            }
            let done = run(seed, is_shown);
            requests.fetch_add(done.requests, Relaxed);
            calls.fetch_add(done.calls, Relaxed);
            assert!(
                done.broken.is_empty(),
                "seed {seed}: {}\nreplay it with TOLLKEEPER_SIMULATION_SEED={seed} cargo test -p tollkeeper \
                 --all-features --lib simulation -- --nocapture",
                done.broken.join("\n")
            );
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    println!("{} runs, {} requests, {} calls", seeds.end - seeds.start, requests.into_inner(), calls.into_inner());
}

#[test]
fn a_seed_replays_exactly() {
    for seed in (0..400).step_by(23) {
        let (once, again) = (run(seed, false), run(seed, false));
        assert_eq!(once, again, "seed {seed}");
    }
}

/// Found by long runs. 2481: two standstills of this process were held against the server. The others were mistakes of the
/// ledger: 12445, a step forward at the same moment as the requests that profit from it; 15555, a slot that moved from a server
/// whose clock was set back to one whose clock was not, which is a step forward for its keys.
#[test]
fn seeds_that_broke_a_law_once_keep_it() {
    for seed in [2481, 12445, 15555] {
        assert_eq!(run(seed, false).broken, Vec::<String>::new(), "seed {seed}");
    }
}
