//! One request at a time: what Tollgate adds to the round trip of a plain script call.

use std::time::Instant;

use redis::aio::ConnectionManager;
use tollgate::redis_wire::{Batch, CHARGE};
use tollgate_bench::Samples;

use crate::contestant::{Classic, Limit, request, user};
use crate::promises::{Bound, Promises};
use crate::server::Server;

const ROUNDS: usize = 20;
const REQUESTS: usize = 1_000;
const LIMIT: Limit = Limit::per_second(1_000_000);

pub async fn compare(promises: &mut Promises) {
    eprintln!("latency: one task");
    let measured = tokio::spawn(measure()).await.expect("measured");
    let names = ["classic EVALSHA, plain", "our script, plain", "tollgate"];
    println!("| one request at a time | p50 µs | spread | p99 µs | p50 beside classic |");
    println!("|---|---:|---|---:|---:|");
    let classic = measured[0].p50.median();
    for (name, Measured { p50, p99 }) in names.iter().zip(&measured) {
        let (fastest, slowest) = p50.spread();
        let ratio = p50.median() / classic;
        println!("| {name} | {:.1} | {fastest:.1}..{slowest:.1} | {:.1} | {ratio:.2} |", p50.median(), p99.median());
    }
    println!();
    let ratio = measured[2].p50.median() / classic;
    promises.check("one request at a time: p50 beside a plain EVALSHA".into(), ratio, Bound::AtMost, 1.1);
}

/// The quantiles of each round.
#[derive(Default)]
struct Measured {
    p50: Samples,
    p99: Samples,
}

impl Measured {
    fn add(&mut self, round: &Samples) {
        self.p50.push(round.median());
        self.p99.push(round.quantile(0.99));
    }
}

/// All over the same kind of connection, in a task, as in a server.
async fn measure() -> [Measured; 3] {
    let server = Server::start();
    let mut connection = ConnectionManager::new(server.client()).await.expect("connects");
    let classic = Classic::new(LIMIT);
    let (limiter, _) = LIMIT.limiter(&server).await;
    let policy = LIMIT.policy();
    let mut measured: [Measured; 3] = Default::default();
    for _ in 0..ROUNDS {
        let mut rounds: [Samples; 3] = Default::default();
        for nth in 0..REQUESTS {
            let start = Instant::now();
            assert!(classic.decide(&mut connection, &user(nth as u64)).await);
            rounds[0].push(micros_since(start));
        }
        for nth in 0..REQUESTS {
            let start = Instant::now();
            let mut batch = Batch::default();
            batch.push(policy.charges(&request(&user(nth as u64))).expect("a cost of 1"), 1);
            let call = CHARGE.evalsha(&batch.call(None));
            let _: redis::Value = call.query_async(&mut connection).await.expect("the script runs");
            rounds[1].push(micros_since(start));
        }
        for nth in 0..REQUESTS {
            let start = Instant::now();
            let verdict = limiter.check(&request(&user(nth as u64))).await.expect("a cost of 1");
            rounds[2].push(micros_since(start));
            assert!(verdict.is_allowed() && !verdict.is_degraded());
        }
        measured.iter_mut().zip(&rounds).for_each(|(measured, round)| measured.add(round));
    }
    measured
}

fn micros_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1_000.0
}
