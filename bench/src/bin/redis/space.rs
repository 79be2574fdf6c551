//! What a key takes in the server's memory.

use tollkeeper::Algorithm;

use crate::contestant::{Client, Clients, Limit, user};
use crate::promises::{Bound, Promises};
use crate::server::Server;

const KEYS: u64 = 200_000;
const TASKS: u64 = 250;

/// Bytes a key.
struct Space {
    memory_usage: f64,
    used: f64,
    resident: f64,
}

pub async fn measure(promises: &mut Promises) {
    println!("| memory at {KEYS} keys | `MEMORY USAGE` | used bytes a key | resident bytes a key | beside classic |");
    println!("|---|---:|---:|---:|---:|");
    // Limits that refill so slowly that no state is idle before all are written.
    let whole = Limit::per_day(10);
    let classic = fill(whole, |clients| &clients.classic).await;
    row("classic hash", &classic, &classic);
    let ours = [
        ("token_bucket, whole rate", whole),
        ("token_bucket, fractional rate", Limit::per_day(7)),
        ("fixed_window", whole.by(Algorithm::FixedWindow)),
        ("sliding_window_counter", whole.by(Algorithm::SlidingWindowCounter)),
    ];
    for (name, limit) in ours {
        let space = fill(limit, |clients| &clients.tollkeeper).await;
        row(name, &space, &classic);
        promises.check(format!("{name}: used bytes a key"), space.used, Bound::AtMost, classic.used);
    }
    println!();
}

fn row(name: &str, space: &Space, classic: &Space) {
    let Space { memory_usage, used, resident } = space;
    println!("| {name} | {memory_usage:.0} | {used:.1} | {resident:.1} | {:.2} |", used / classic.used);
}

/// Each in a server of its own, so that none sees what the allocator kept for another.
async fn fill(limit: Limit, side: impl Fn(&Clients) -> &Vec<Client>) -> Space {
    eprintln!("memory: {} {}/{}", limit.algorithm, limit.count, limit.per);
    let server = Server::start();
    // All tasks share a connection: buffers of many would come and go among the keys.
    let clients = Clients::connect(&server, limit, 1).await;
    let client = &side(&clients)[0];
    // What a server sets aside for its first script is no key's.
    client.clone().decide("somebody").await;
    let before = server.info("memory");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mut client = client.clone();
            tokio::spawn(async move {
                for nth in (task..KEYS).step_by(TASKS as usize) {
                    assert!(client.decide(&user(nth)).await, "a first request passes");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task ends");
    }
    let after = server.info("memory");
    // And the first key, and the signs of life.
    assert!((KEYS..=KEYS + 2).contains(&server.ask::<u64>(&["DBSIZE"])), "every key is stored");
    let grown = |name: &str| (after[name] - before[name]) / KEYS as f64;
    Space {
        memory_usage: server.ask(&["MEMORY", "USAGE", &key_of(&server, &user(KEYS / 2))]),
        used: grown("used_memory"),
        resident: grown("used_memory_rss"),
    }
}

/// The key under which something is stored for a user, whatever the server's client calls it.
fn key_of(server: &Server, user: &str) -> String {
    let keys: Vec<String> = server.ask(&["KEYS", &format!("*{user}*")]);
    assert_eq!(keys.len(), 1, "one key for {user}");
    keys.into_iter().next().unwrap_or_default()
}
