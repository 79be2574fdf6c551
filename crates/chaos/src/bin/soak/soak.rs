//! Load for minutes: memory stays flat, and nothing fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::client::{Answer, Client};
use crate::quantiles::quantile;
use crate::service::Loaded;

/// Connections at a time; each has one request in flight, with a pause after it.
const CLIENTS: u64 = 32;
const PAUSE: Duration = Duration::from_millis(4);
/// From the first half of the run to the second, memory may grow by a tenth and by this many MiB, which allocators need
/// for a run of any length.
const SLACK: f64 = 4.0;

#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    shed: AtomicU64,
    errors: Mutex<Vec<String>>,
    millis: Mutex<Vec<f64>>,
}

impl Seen {
    fn millis(&self) -> MutexGuard<'_, Vec<f64>> {
        self.millis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn errors(&self) -> MutexGuard<'_, Vec<String>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line of the table.
struct Sample {
    memory: f64,
    files: usize,
}

/// Whether all was well.
pub(crate) async fn run(length: Duration) -> bool {
    // Longer than by default: a machine that is busy with something else must not fail this.
    let (service, seen, stop) = (Loaded::start("1s"), Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let ask = |number| tokio::spawn(ask(service.address().to_string(), number, seen.clone(), stop.clone()));
    let tasks: Vec<_> = (0..CLIENTS).map(ask).collect();
    // What the service sets aside once, it has after a while.
    let warm_up = (length / 4).min(Duration::from_secs(60));
    let every = (length / 12).max(Duration::from_secs(1));
    let (begun, mut samples) = (Instant::now(), Vec::new());
    println!("| s | requests a second | shed | p50 ms | p99 ms | resident MiB | files |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    let (mut before, mut last) = (0, Instant::now());
    while begun.elapsed() < length {
        tokio::time::sleep(every).await;
        let (answered, took) = (seen.answered.load(Relaxed), last.elapsed().as_secs_f64());
        last = Instant::now();
        let mut millis = std::mem::take(&mut *seen.millis());
        let sample = Sample { memory: service.memory(), files: service.files() };
        println!(
            "| {:.0} | {:.0} | {} | {:.2} | {:.2} | {:.1} | {} |",
            begun.elapsed().as_secs_f64(),
            (answered - before) as f64 / took,
            seen.shed.load(Relaxed),
            quantile(&mut millis, 0.5),
            quantile(&mut millis, 0.99),
            sample.memory,
            sample.files,
        );
        if begun.elapsed() >= warm_up {
            samples.push(sample);
        }
        before = answered;
    }
    stop.store(true, Relaxed);
    for task in tasks {
        let _ = task.await;
    }
    judge(&service, &seen, &samples)
}

fn judge(service: &Loaded, seen: &Seen, samples: &[Sample]) -> bool {
    let (errors, complaints) = (seen.errors(), service.complaints());
    errors.iter().take(5).for_each(|error| println!("error: {error}"));
    complaints.iter().take(5).for_each(|line| println!("log: {line}"));
    let (first, second) = samples.split_at(samples.len() / 2);
    let memory = |samples: &[Sample]| samples.iter().map(|sample| sample.memory).fold(0.0, f64::max);
    let files = |samples: &[Sample]| samples.iter().map(|sample| sample.files).max().unwrap_or(0);
    let (early, late) = (memory(first), memory(second));
    let is_flat = late <= early * 1.1 + SLACK && files(second) <= files(first) + CLIENTS as usize;
    println!(
        "{} requests, {} errors, {} lines in the log; at most {early:.1} MiB in the first half and {late:.1} MiB in the second{}",
        seen.answered.load(Relaxed),
        errors.len(),
        complaints.len(),
        if is_flat { "" } else { ": it grows" }
    );
    errors.is_empty() && complaints.is_empty() && is_flat
}

/// One client: mostly checks, some of keys that nobody used before, and now and then a slot, a reservation, a new connection.
async fn ask(address: String, number: u64, seen: Arc<Seen>, stop: Arc<AtomicBool>) {
    let mut chance = Chance::new(number);
    let mut client = Client::connect(&address).await.expect("a connection");
    while !stop.load(Relaxed) {
        let begun = Instant::now();
        let (kind, key) = (chance.below(100), chance.next());
        let (path, body) = match kind {
            0..30 => ("/v1/check", r#"{"attributes":{"hot":"one"}}"#.to_string()),
            30..60 => ("/v1/check", format!(r#"{{"attributes":{{"user":"{}"}}}}"#, key % 1_000)),
            60..90 => ("/v1/check", format!(r#"{{"attributes":{{"user":"new-{key}"}}}}"#)),
            90..95 => ("/v1/check", format!(r#"{{"attributes":{{"job":"{}"}}}}"#, key % 20)),
            _ => ("/v1/reserve", r#"{"attributes":{"tokens":"one"},"cost":5,"hold_ms":5000}"#.to_string()),
        };
        match client.post(path, &body).await {
            Ok(answer) if answer.status == 200 => {
                if let Err(error) = follow_up(&mut client, &answer, key).await {
                    seen.errors().push(format!("after {path} {body}: {error}"));
                }
            }
            Ok(answer) if is_shed(&answer) => _ = seen.shed.fetch_add(1, Relaxed),
            Ok(answer) => seen.errors().push(format!("{path} {body}: {} {}", answer.status, answer.body)),
            Err(error) => {
                seen.errors().push(format!("{path} {body}: {error}"));
                client = Client::connect(&address).await.expect("a connection");
            }
        }
        seen.answered.fetch_add(1, Relaxed);
        seen.millis().push(begun.elapsed().as_secs_f64() * 1_000.0);
        if kind == 0 {
            client = Client::connect(&address).await.expect("a connection");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns what was given, mostly: some clients forget.
async fn follow_up(client: &mut Client, answer: &Answer, key: u64) -> Result<(), String> {
    if key.is_multiple_of(10) {
        return Ok(());
    }
    let answer = answer.json();
    let (row, id) = (&answer["rules"][0], &answer["reservation"]["id"]);
    let asked = if let (Some(hold), Some(job)) = (row["hold"].as_str(), row["key"].as_str()) {
        let body = format!(r#"{{"rule":"jobs","key":"{job}","hold":"{hold}"}}"#);
        client.post("/v1/release", &body).await
    } else if let Some(id) = id.as_str() {
        client.post(&format!("/v1/reservations/{id}/settle"), r#"{"cost":3}"#).await
    } else {
        return Ok(());
    };
    match asked {
        Ok(answer) if answer.status == 200 || is_shed(&answer) => Ok(()),
        Ok(answer) => Err(format!("{} {}", answer.status, answer.body)),
        Err(error) => Err(error.to_string()),
    }
}

fn is_shed(answer: &Answer) -> bool {
    answer.status == 503 && answer.body.contains("overload")
}
