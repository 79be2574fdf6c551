//! One request at a time: what Tollkeeper adds to the round trip of a plain script call.

use std::time::Instant;

use redis::aio::ConnectionManager;
use tollkeeper_bench::Samples;

use crate::contestant::{Classic, Limit, request, user};
use crate::promises::{Bound, Promises};
use crate::server::Server;

/// Short rounds: a machine has quick moments and slow ones, and each round should meet one kind with all contestants.
const ROUNDS: usize = 100;
const REQUESTS: usize = 200;
const LIMIT: Limit = Limit::per_second(1_000_000);

pub async fn compare(promises: &mut Promises) {
    eprintln!("latency: one task");
    let measured = tokio::spawn(measure()).await.expect("measured");
    println!("| one request at a time | p50 µs | spread | p99 µs | p50 beside classic |");
    println!("|---|---:|---|---:|---:|");
    for (name, Measured { p50, all, beside_classic }) in NAMES.iter().zip(measured) {
        let (fastest, slowest) = p50.spread();
        let (median, p99, ratio) = (p50.median(), Samples::from_iter(all).quantile(0.99), beside_classic.median());
        println!("| {name} | {median:.1} | {fastest:.1}..{slowest:.1} | {p99:.1} | {ratio:.2} |");
        if name == NAMES.last().expect("ours") {
            promises.check("one request at a time: p50 beside a plain EVALSHA".into(), ratio, Bound::AtMost, 1.1);
        }
    }
    println!();
}

const NAMES: [&str; 2] = ["classic EVALSHA, plain", "tollkeeper"];

#[derive(Default)]
struct Measured {
    /// Of each round.
    p50: Samples,
    beside_classic: Samples,
    all: Vec<f64>,
}

impl Measured {
    fn add(&mut self, round: Vec<f64>, classic_p50: f64) {
        let p50 = median(&round);
        self.p50.push(p50);
        self.beside_classic.push(p50 / classic_p50);
        self.all.extend(round);
    }
}

fn median(round: &[f64]) -> f64 {
    Samples::from_iter(round.iter().copied()).median()
}

/// All over the same kind of connection, in a task, as in a server.
async fn measure() -> [Measured; 2] {
    let server = Server::start();
    let mut connection = ConnectionManager::new(server.client()).await.expect("connects");
    let classic = Classic::new(LIMIT);
    let (limiter, _) = LIMIT.limiter(&server).await;
    let mut measured: [Measured; 2] = Default::default();
    for _ in 0..ROUNDS {
        let mut rounds: [Vec<f64>; 2] = Default::default();
        for nth in 0..REQUESTS {
            let start = Instant::now();
            assert!(classic.decide(&mut connection, &user(nth as u64)).await);
            rounds[0].push(micros_since(start));
        }
        for nth in 0..REQUESTS {
            let start = Instant::now();
            let verdict = limiter.check(&request(&user(nth as u64))).await.expect("a cost of 1");
            rounds[1].push(micros_since(start));
            assert!(verdict.is_allowed() && !verdict.is_degraded());
        }
        let classic_p50 = median(&rounds[0]);
        measured.iter_mut().zip(rounds).for_each(|(measured, round)| measured.add(round, classic_p50));
    }
    measured
}

fn micros_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1_000.0
}
