//! State that an earlier release left in Redis is read, and counting continues exactly where that release stopped.
//!
//! A folder of `tests/earlier` is named after a release and has its rules, the keys that it left on the server after some
//! requests (`redis.jsonl`), and what came then with that release's own answers (`continued.jsonl`). Folders are added, never
//! changed. Before a release, add the one of its version with
//! `TOLLKEEPER_WRITE=1 cargo test -p tollkeeper --all-features --test stores redis_earlier -- --ignored`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::{
    Actual, Decision, Descriptor, Exception, ExceptionKind, Grant, Hold, Key, Limiter, ManualClock, Policy,
    RedisOptions, RedisStore, RuleSpec, Span, Timestamp,
};
use tollkeeper_testkit::store::{Kind, Server};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/earlier")
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn limiter_on(server: &Server, rules: &Value) -> (Arc<Limiter>, ManualClock) {
    let rules: Vec<RuleSpec> = serde_json::from_value(rules.clone()).unwrap();
    let clock = ManualClock::default();
    let options =
        RedisOptions { deadline: Duration::from_secs(10), clock: clock.clone().into(), ..RedisOptions::default() };
    let store = RedisStore::connect(&server.url(), options).await.unwrap();
    (Arc::new(Limiter::new(Policy::new(rules).unwrap(), store)), clock)
}

/// Does what a line says, and returns the answer in the form in which it is kept.
async fn done(limiter: &Arc<Limiter>, clock: &ManualClock, line: &Value) -> Value {
    clock.set(Timestamp::from_micros(line["at_us"].as_u64().unwrap()));
    let cost = line["cost"].as_u64().unwrap_or(1) as u32;
    if let Some(attributes) = line["check"].as_object() {
        let verdict = limiter.check(&request(attributes, cost)).await.unwrap();
        let row = |row: &tollkeeper::Row| json!([row.charge.rule.name(), numbers(&row.decision)]);
        return verdict.rows().iter().map(row).collect();
    }
    if let Some(slot) = line["release"].as_array() {
        let key = Key { variant: 0, value: slot[1].as_str().unwrap().into() };
        let hold =
            Hold { at: Timestamp::from_micros(slot[2].as_u64().unwrap()), nth: slot[3].as_u64().unwrap() as u32 };
        return limiter.release(slot[0].as_str().unwrap(), &key, hold).await.unwrap().unwrap().into();
    }
    let ticket = serde_json::from_value(line["settle"].clone()).unwrap();
    let settlement = limiter.redeem(ticket).settle(Actual::cost(cost)).await.unwrap();
    let row = |row: &tollkeeper::Settled| json!([row.charge.rule.name(), row.refunded, numbers(&row.decision)]);
    settlement.rows.iter().map(row).collect()
}

fn request(attributes: &serde_json::Map<String, Value>, cost: u32) -> Descriptor {
    let pairs = attributes.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_string()));
    Descriptor::new(pairs).with_cost(cost)
}

fn numbers(decision: &Decision) -> Value {
    json!({
        "allowed": decision.is_allowed(),
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after_us": decision.retry_after().map(Span::as_micros),
        "reset_after_us": decision.reset_after.as_micros(),
        "delay_us": decision.delay().as_micros(),
        "hold": decision.hold.map(|hold| (hold.at.as_micros(), hold.nth)),
    })
}

/// Puts keys on a server as they were. They expire by the clock of the server, and the requests have their own.
fn restore(server: &Server, keys: &[Value]) {
    let mut connection = server.connect();
    for key in keys {
        let values = key["values"].as_array().unwrap().iter().map(|value| bytes(value.as_str().unwrap()));
        let command = match key["type"].as_str().unwrap() {
            "string" => "SET",
            "list" => "RPUSH",
            "hash" => "HSET",
            other => panic!("keys of type {other} are not known here"),
        };
        let name = key["key"].as_str().unwrap();
        redis::cmd(command).arg(name).arg(values.collect::<Vec<_>>()).exec(&mut connection).unwrap();
    }
}

fn kept(server: &Server) -> Vec<Value> {
    let mut connection = server.connect();
    let mut names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    names.sort();
    let read = |name: String| {
        let of_type: String = redis::cmd("TYPE").arg(&name).query(&mut connection).unwrap();
        let values: Vec<Vec<u8>> = match of_type.as_str() {
            "string" => vec![redis::cmd("GET").arg(&name).query(&mut connection).unwrap()],
            "list" => redis::cmd("LRANGE").arg(&name).arg(0).arg(-1).query(&mut connection).unwrap(),
            "hash" => redis::cmd("HGETALL").arg(&name).query(&mut connection).unwrap(),
            other => panic!("{name} has the type {other}"),
        };
        json!({ "key": name, "type": of_type, "values": values.iter().map(|value| hex(value)).collect::<Vec<_>>() })
    };
    names.into_iter().map(read).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_earlier_releases_is_continued_exactly() {
    let mut releases: Vec<PathBuf> = folder().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    releases.sort();
    assert!(!releases.is_empty());
    for release in releases {
        let rules: Value = serde_json::from_str(&std::fs::read_to_string(release.join("rules.json")).unwrap()).unwrap();
        let (keys, continued) = (lines(&release.join("redis.jsonl")), lines(&release.join("continued.jsonl")));
        for kind in Kind::ALL {
            let server = Server::start(kind);
            restore(&server, &keys);
            let (limiter, clock) = limiter_on(&server, &rules).await;
            for line in &continued {
                let answer = done(&limiter, &clock, line).await;
                assert_eq!(answer, line["answer"], "{kind:?}, state of {}: {line}", release.display());
            }
        }
    }
}

/// Without the keys, the answers are others: the fixture tests something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_state_the_answers_would_be_others() {
    let release = folder().join("0.1.0");
    let rules = serde_json::from_str(&std::fs::read_to_string(release.join("rules.json")).unwrap()).unwrap();
    let server = Server::start(Kind::Redis7);
    let (limiter, clock) = limiter_on(&server, &rules).await;
    let mut differing = std::collections::BTreeSet::new();
    for line in lines(&release.join("continued.jsonl")) {
        if done(&limiter, &clock, &line).await != line["answer"] {
            differing.insert(line["answer"][0][0].as_str().unwrap_or("slots").to_string());
        }
    }
    let names = rules.as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap().to_string());
    assert_eq!(differing, names.collect());
}

/// One rule of every format that is stored, each with an attribute of its own.
fn rules() -> Value {
    json!([
        { "name": "bucket", "key": "{bucket}", "limit": "1/s", "burst": 20 },
        // No whole number of microseconds per token.
        { "name": "odd", "key": "{odd}", "limit": "7,919/day", "burst": 20, "algorithm": "gcra" },
        { "name": "leaky", "key": "{leaky}", "limit": "30/min", "burst": 10, "algorithm": "leaky_bucket" },
        { "name": "window", "key": "{window}", "limit": "30/min", "algorithm": "fixed_window" },
        { "name": "month", "key": "{month}", "limit": "300/month", "algorithm": "fixed_window", "timezone": "Europe/Berlin", "anchor_day": 15 },
        { "name": "log", "key": "{log}", "limit": "12/min", "algorithm": "sliding_window_log" },
        { "name": "counter", "key": "{counter}", "limit": "40/min", "algorithm": "sliding_window_counter" },
        { "name": "slots", "key": "{slots}", "limit": 3, "hold": "10min", "algorithm": "concurrency" },
        { "name": "either", "key": "{api_key|ip}", "limit": "9/min" },
        { "name": "tokens", "key": "{tokens}", "limit": "1000/min" },
    ])
}

/// Some rounds of requests, ten for each rule, at odd distances: what a client does that is sometimes over its limits.
fn rounds(from_us: u64, rounds: u64) -> Vec<Value> {
    let long = "a-value-of-more-than-64-bytes-".repeat(4);
    let mut lines = Vec::new();
    for round in 0..rounds {
        let at = from_us + round * 777_777;
        let cost = 1 + round % 4;
        for (turn, name) in ["bucket", "odd", "leaky", "window", "month", "log", "counter", "tokens"].iter().enumerate()
        {
            lines.push(json!({ "at_us": at + turn as u64 * 1_234, "cost": cost, "check": { *name: "42" } }));
        }
        let together = json!({ "bucket": long, "window": long, "log": long, "counter": long, "odd": long });
        lines.push(json!({ "at_us": at + 20_000, "cost": cost, "check": together }));
        let either = if round % 2 == 0 { json!({ "ip": "192.0.2.7" }) } else { json!({ "api_key": "192.0.2.7" }) };
        lines.push(json!({ "at_us": at + 30_000, "check": either }));
        let excepted = if round % 2 == 0 { "blocked" } else { "granted" };
        lines.push(json!({ "at_us": at + 40_000, "cost": 7, "check": { "bucket": excepted } }));
    }
    lines
}

/// Writes the folder of this version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes a fixture; see above"]
async fn write_the_state_of_this_version() {
    assert!(std::env::var_os("TOLLKEEPER_WRITE").is_some(), "set TOLLKEEPER_WRITE to write a fixture");
    // 15 November 2026, shortly before a minute ends.
    let began = 1_794_700_795_123_456;
    let server = Server::start(Kind::Redis7);
    let rules = rules();
    let (limiter, clock) = limiter_on(&server, &rules).await;
    clock.set(Timestamp::from_micros(began));
    limiter.except(Exception::new("bucket", "blocked", ExceptionKind::Block).because("scraper")).await.unwrap();
    let more = Grant { limit: "30/min".into(), burst: Some(40) };
    limiter.except(Exception::new("bucket", "granted", ExceptionKind::Grant(more))).await.unwrap();
    for line in rounds(began, 12) {
        done(&limiter, &clock, &line).await;
    }
    // Taken before, given back after: slots, and estimates.
    let slots = json!({ "at_us": began + 9_500_000, "check": { "slots": "42" } });
    let mut continued = Vec::new();
    for _ in 0..3 {
        let taken = done(&limiter, &clock, &slots).await;
        let hold = &taken[0][1]["hold"];
        continued.push(json!({ "at_us": began + 11_000_000, "release": ["slots", "42", hold[0], hold[1]] }));
    }
    // One slot stays taken.
    continued.truncate(2);
    for cost in [100, 60] {
        let (_, reservation) = limiter.reserve(&Descriptor::new([("tokens", "42")]).with_cost(cost)).await.unwrap();
        let ticket = serde_json::to_value(reservation.into_ticket()).unwrap();
        continued.push(json!({ "at_us": began + 11_500_000, "cost": 40, "settle": ticket }));
    }
    let keys = kept(&server);
    continued.insert(0, json!({ "at_us": began + 10_900_000, "check": { "slots": "42" } }));
    continued.extend(rounds(began + 12_000_000, 12));
    continued.push(json!({ "at_us": began + 30_000_000, "check": { "slots": "42" }, "cost": 2 }));
    for line in &mut continued {
        line["answer"] = done(&limiter, &clock, line).await;
    }
    let place = folder().join(env!("CARGO_PKG_VERSION"));
    std::fs::create_dir_all(&place).unwrap();
    let text = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    std::fs::write(place.join("rules.json"), format!("{}\n", serde_json::to_string_pretty(&rules).unwrap())).unwrap();
    std::fs::write(place.join("redis.jsonl"), text(&keys)).unwrap();
    std::fs::write(place.join("continued.jsonl"), text(&continued)).unwrap();
}
