//! More and more is offered: how much is answered, admitted and shed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::client::Client;
use crate::quantiles::quantile;
use crate::service::{HOT, Loaded};

/// One load. Rates are in requests a second.
pub(crate) struct Step {
    pub(crate) offered: f64,
    pub(crate) served: f64,
    pub(crate) shed: f64,
    /// Offered while all connections were in use, so not sent.
    unsent: f64,
    /// Of the key that all clients share,
    pub(crate) admitted: f64,
    /// and what its limit and burst allow.
    pub(crate) allowed: f64,
    /// Of those that were served, in milliseconds.
    p50: f64,
    p99: f64,
    /// CPU time for each of them, in microseconds: what is left for them when the load itself takes more of the machine is
    /// another matter.
    service_us: f64,
    redis_us: f64,
    load_us: f64,
}

const CONNECTIONS: usize = 1_500;
const RATES: [u32; 10] = [1_000, 2_500, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 45_000, 60_000];

#[derive(Default)]
struct Seen {
    served: AtomicU64,
    shed: AtomicU64,
    admitted: AtomicU64,
    broken: AtomicU64,
    millis: Mutex<Vec<f64>>,
}

/// The connections that are not in use. Each has its turn, so that all of them stay open.
type Idle = Arc<Mutex<VecDeque<Client>>>;

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn run(each: Duration) -> Vec<Step> {
    // The default.
    let service = Loaded::start("20ms");
    let mut idle = VecDeque::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        idle.push_back(Client::connect(service.address()).await.expect("a connection"));
    }
    let idle: Idle = Arc::new(Mutex::new(idle));
    println!(
        "| offered a second | served | shed | not sent | hot key admitted | allowed | p50 ms | p99 ms | service µs | Redis µs | load µs |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut steps: Vec<Step> = Vec::new();
    for rate in RATES {
        steps.push(offer(&idle, rate, each, &service).await);
    }
    let complaints = service.complaints();
    complaints.iter().take(5).for_each(|line| println!("log: {line}"));
    let beyond = compare(&idle, &steps, each, &service).await;
    let place = steps.partition_point(|step| step.offered < beyond.offered);
    steps.insert(place, beyond);
    steps
}

/// The best load and three times what it served, in turns: what came before, such as the keys that Redis keeps for a minute, weighs on
/// both alike. The last of the latter.
async fn compare(idle: &Idle, steps: &[Step], each: Duration, service: &Loaded) -> Step {
    const ROUNDS: usize = 3;
    let best = steps.iter().max_by(|one, other| one.served.total_cmp(&other.served)).expect("some loads");
    println!("In turns:");
    let (mut peaks, mut goodputs, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..ROUNDS {
        peaks.push(offer(idle, best.offered as u32, each, service).await.served);
        let beyond = offer(idle, (3.0 * best.served) as u32, each, service).await;
        goodputs.push(beyond.served);
        last = Some(beyond);
    }
    let last = last.expect("some rounds");
    let (peak, goodput) = (quantile(&mut peaks, 0.5), quantile(&mut goodputs, 0.5));
    println!(
        "At {:.1} times the capacity {:.0} % is served of what is at {:.0} a second, and {:.0} % of the highest rate of all.",
        last.offered / best.served,
        goodput / peak * 100.0,
        best.offered,
        goodput / best.served * 100.0
    );
    last
}

/// Whether the shared key never got more than its limit.
pub(crate) fn is_limited(steps: &[Step]) -> bool {
    steps.iter().all(|step| step.admitted <= step.allowed)
}

/// Sends requests when they are due, on any connection that is free.
async fn offer(idle: &Idle, rate: u32, each: Duration, service: &Loaded) -> Step {
    let (seen, begun, before) = (Arc::new(Seen::default()), Instant::now(), service.spent());
    let (mut offered, mut unsent, mut chance) = (0_u64, 0_u64, Chance::new(u64::from(rate)));
    let mut tasks = JoinSet::new();
    while begun.elapsed() < each {
        let due = (begun.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while offered < due {
            offered += 1;
            let draw = chance.next();
            let Some(client) = locked(idle).pop_front() else {
                unsent += 1;
                continue;
            };
            let (idle, seen, address) = (idle.clone(), seen.clone(), service.address().to_string());
            tasks.spawn(async move {
                let client = ask(client, &seen, draw, &address).await;
                locked(&idle).push_back(client);
            });
        }
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let sending = begun.elapsed().as_secs_f64();
    while tasks.join_next().await.is_some() {}
    let all = begun.elapsed().as_secs_f64();
    if seen.broken.load(Relaxed) > 0 {
        println!("{} connections broke", seen.broken.load(Relaxed));
    }
    let mut millis = std::mem::take(&mut *locked(&seen.millis));
    let (after, served) = (service.spent(), seen.served.load(Relaxed).max(1) as f64);
    let a_second = |count: u64| count as f64 / sending;
    let step = Step {
        offered: a_second(offered),
        served: a_second(seen.served.load(Relaxed)),
        shed: a_second(seen.shed.load(Relaxed)),
        unsent: a_second(unsent),
        admitted: a_second(seen.admitted.load(Relaxed)),
        // The burst, and what is refilled from the first request to the last answer.
        allowed: f64::from(HOT) * (1.0 + all) / sending,
        p50: quantile(&mut millis, 0.5),
        p99: quantile(&mut millis, 0.99),
        service_us: (after.service - before.service) / served * 1e6,
        redis_us: (after.redis - before.redis) / served * 1e6,
        load_us: (after.load - before.load) / served * 1e6,
    };
    let Step { offered, served, shed, unsent, admitted, allowed, p50, p99, service_us, redis_us, load_us } = step;
    println!(
        "| {offered:.0} | {served:.0} | {shed:.0} | {unsent:.0} | {admitted:.1} | {allowed:.1} | {p50:.1} | {p99:.1} | \
         {service_us:.0} | {redis_us:.0} | {load_us:.0} |"
    );
    // The shared bucket fills up again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    step
}

async fn ask(mut client: Client, seen: &Seen, draw: u64, address: &str) -> Client {
    let begun = Instant::now();
    // A quarter of all ask for one key; the others for keys of which the store has to be asked.
    let is_hot = draw.is_multiple_of(4);
    let body = if is_hot {
        r#"{"attributes":{"hot":"one"}}"#.to_string()
    } else {
        format!(r#"{{"attributes":{{"user":"{}"}}}}"#, draw % 1_000_000)
    };
    match client.post("/v1/check", &body).await {
        Ok(answer) if answer.status == 503 => _ = seen.shed.fetch_add(1, Relaxed),
        Ok(answer) => {
            seen.served.fetch_add(1, Relaxed);
            seen.admitted.fetch_add(u64::from(is_hot && answer.is_allowed()), Relaxed);
            locked(&seen.millis).push(begun.elapsed().as_secs_f64() * 1_000.0);
        }
        Err(_) => {
            seen.broken.fetch_add(1, Relaxed);
            client = Client::connect(address).await.expect("a connection");
        }
    }
    client
}
