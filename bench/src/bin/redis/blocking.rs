//! How long one script call keeps the server from doing anything else, by the server's slow log.

use redis::Value;
use tollkeeper::Algorithm;
use tollkeeper_bench::Samples;

use crate::contestant::{Client, Clients, Limit};
use crate::load::drive;
use crate::promises::{Bound, Promises};
use crate::server::Server;

const TASKS: usize = 512;
const REQUESTS_A_TASK: usize = 200;
/// Few enough that nearly every state is found stored: reading one takes longer than finding none.
const USERS: u64 = 10_000;

pub async fn measure(promises: &mut Promises) {
    let ours = [
        ("token_bucket, whole rate", Limit::per_hour(1_000)),
        ("token_bucket, fractional rate", Limit::per_hour(7_919)),
        ("fixed_window", Limit::per_hour(1_000).by(Algorithm::FixedWindow)),
        ("sliding_window_counter", Limit::per_hour(1_000).by(Algorithm::SlidingWindowCounter)),
        ("sliding_window_log", Limit::per_hour(1_000).by(Algorithm::SlidingWindowLog)),
        ("leaky_bucket", Limit::per_hour(1_000).by(Algorithm::LeakyBucket)),
    ];
    println!("| script call, {TASKS} tasks | keys | median µs | p99 µs | longest µs | median µs a key |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, limit) in ours {
        eprintln!("script time: {name}");
        let server = Server::start();
        let clients = Clients::connect(&server, limit, TASKS).await;
        let micros = row(name, &server, &clients.tollkeeper).await;
        // Longer ones say how long somebody else had the processor: with tasks on all of them, a server waits for its
        // turn in the middle of a script. The classic script shows by how much.
        promises.check(format!("{name}: median µs of a call"), micros.median(), Bound::AtMost, 250.0);
    }
    eprintln!("script time: classic");
    let server = Server::start();
    let clients = Clients::connect(&server, Limit::per_hour(1_000), TASKS).await;
    row("classic", &server, &clients.classic).await;
    println!();
}

async fn row(name: &str, server: &Server, clients: &[Client]) -> Samples {
    drive(clients, REQUESTS_A_TASK / 2, USERS, 0, true).await;
    // What scripts call is logged too, which takes time. Most of it is quicker than this, and no script is.
    let _: () = server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "4", "slowlog-max-len", "200000"]);
    drive(clients, REQUESTS_A_TASK, USERS, 1, true).await;
    let log: Vec<(i64, i64, f64, Vec<Value>, Value, Value)> = server.ask(&["SLOWLOG", "GET", "-1"]);
    let calls: Vec<(f64, f64)> =
        log.iter().filter_map(|(_, _, micros, words, ..)| Some((*micros, keys(words)?))).collect();
    let micros: Samples = calls.iter().map(|(micros, _)| *micros).collect();
    let keys: Samples = calls.iter().map(|(_, keys)| *keys).collect();
    let median = micros.median();
    println!(
        "| {name} | {:.0} | {median:.0} | {:.0} | {:.0} | {:.1} |",
        keys.median(),
        micros.quantile(0.99),
        micros.spread().1,
        median / keys.median()
    );
    micros
}

/// How many keys a script call was about.
fn keys(words: &[Value]) -> Option<f64> {
    let text = |word: &Value| redis::from_redis_value_ref::<String>(word).ok();
    (text(words.first()?)?.eq_ignore_ascii_case("EVALSHA")).then(|| text(&words[2])?.parse().ok())?
}
