//! Three processes share one Redis and one rule of a million requests a second with `lease: auto`, through the library.
//! One of them is killed in the middle. The auditor of the tests, which knows nothing but times, judges all of it.

#[path = "../../../../crates/tollkeeper/tests/processes/auditor.rs"]
mod auditor;
#[path = "../../../../crates/tollkeeper/tests/processes/fleet.rs"]
mod fleet;
#[path = "../../../../crates/tollkeeper/tests/processes/recording.rs"]
mod recording;
#[path = "../redis/server.rs"]
#[allow(dead_code)]
mod server;
#[path = "../../../../crates/tollkeeper/tests/processes/worker.rs"]
mod worker;

use std::time::Duration;

use auditor::{Law, Rate};
use fleet::{Fleet, Orders};
use server::Server;

const LASTS: Duration = Duration::from_secs(4);
const PROCESSES: usize = 3;
const RATE: u64 = 1_000_000;

fn main() {
    if let Some(job) = worker::Job::from_environment() {
        return job.run();
    }
    println!(
        "| burst | one killed | decisions/s | admitted/s | excess that could hide | calls/s to Redis | Redis CPU |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (burst, is_killed) in [(RATE, false), (RATE, true), (50_000, false), (50_000, true)] {
        eprintln!("leases: burst {burst}, {}", if is_killed { "one is killed" } else { "all live" });
        run(burst, is_killed);
    }
}

fn run(burst: u64, is_killed: bool) {
    let server = Server::start();
    let orders = Orders {
        url: server.url(),
        rule: serde_json::json!({
            "name": "global", "key": "global", "limit": format!("{RATE}/s"), "burst": burst, "lease": "auto",
            "on_store_failure": "closed",
        }),
        processes: PROCESSES,
        callers: 16,
        costs: vec![1],
        lasts: LASTS,
        requests_per_caller: 1 << 21,
    };
    let (cpu, calls) = (server.cpu(), server.calls());
    let mut fleet = Fleet::start(&orders, &[]);
    if is_killed {
        fleet.kill(1, LASTS / 2);
    }
    let requests = fleet.requests().concat();
    let (cpu, calls) = (server.cpu().process - cpu.process, server.calls() - calls);
    // Denials while others hold what is left are what leases cost: up to a bucket of them is not held against it.
    let law = Law::Bucket { burst, rate: Rate { count: RATE, period_us: 1_000_000 } };
    let report = law.audit(&requests, burst).unwrap_or_else(|violation| panic!("burst {burst}: {violation}"));
    let seconds = LASTS.as_secs_f64();
    println!(
        "| {burst} | {} | {:.0} | {:.0} | {} | {:.0} | {:.1} % |",
        if is_killed { "yes" } else { "no" },
        requests.len() as f64 / seconds,
        report.admitted as f64 / seconds,
        report.unseen_excess,
        calls as f64 / seconds,
        cpu / seconds / 10_000.0,
    );
}
