//! A load generator for every protocol of the service: `tollkeeper bench`.
//!
//! In a closed loop each connection sends its next request when the last one is answered, so a slow service is asked
//! less. In an open loop (`--rate`) requests are due at fixed times, and the latency of a late one counts from when it
//! was due: a service that falls behind cannot hide it (no coordinated omission).

mod answer;
mod connection;
pub(crate) mod keys;
pub(crate) mod lawful;
mod resp;
pub(crate) mod tally;
pub(crate) mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tollkeeper_tune::Chance;

use answer::Answer;
use connection::Connection;
use keys::{Keys, stream};
use tally::Tally;
use target::Target;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// What to send, and for how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) connections: usize,
    /// Requests on their way at once on a connection.
    pub(crate) pipeline: usize,
    pub(crate) duration: Duration,
    /// End after this many.
    pub(crate) requests: Option<u64>,
    /// Requests a second, whatever the answers take.
    pub(crate) rate: Option<f64>,
    pub(crate) keys: Keys,
    pub(crate) seed: u64,
}

/// Seen while it runs.
#[derive(Debug)]
pub(crate) struct Progress {
    next: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) allowed: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Set to end early.
    pub(crate) stop: AtomicBool,
    /// By the number of the key.
    admitted: Vec<AtomicU32>,
}

impl Progress {
    pub(crate) fn of(plan: &Plan) -> Progress {
        Progress {
            next: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            admitted: (0..plan.keys.tallied()).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// How many requests of each key were admitted.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = u32> + '_ {
        self.admitted.iter().map(|count| count.load(Relaxed))
    }
}

/// Runs the plan to its end.
pub(crate) async fn run(plan: Arc<Plan>, progress: Arc<Progress>) -> Tally {
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for number in 0..plan.connections {
        let worker = Worker {
            plan: plan.clone(),
            progress: progress.clone(),
            begun,
            chance: stream(plan.seed, number as u64),
            tally: Tally::new(),
        };
        workers.spawn(worker.work());
    }
    let mut total = Tally::new();
    while let Some(worked) = workers.join_next().await {
        if let Ok(tally) = worked {
            total.add(tally);
        }
    }
    total.took = begun.elapsed();
    total
}

/// One connection.
struct Worker {
    plan: Arc<Plan>,
    progress: Arc<Progress>,
    begun: Instant,
    chance: Chance,
    tally: Tally,
}

impl Worker {
    async fn work(mut self) -> Tally {
        let mut connection = None;
        let mut keys = Vec::with_capacity(self.plan.pipeline);
        let mut answers = Vec::with_capacity(self.plan.pipeline);
        while let Some(asked_at) = self.turn().await {
            if connection.is_none() {
                connection = match Connection::open(&self.plan.target).await {
                    Ok(opened) => Some(opened),
                    Err(error) => {
                        self.fail(1, format!("cannot connect: {error}"));
                        sleep(PAUSE).await;
                        continue;
                    }
                };
            }
            let Some(open) = &mut connection else { continue };
            keys.clear();
            keys.extend((0..self.plan.pipeline).map(|_| self.plan.keys.draw(&mut self.chance)));
            answers.clear();
            let asked = timeout(PATIENCE, open.ask(&self.plan.target, &keys, &mut answers)).await;
            let took = asked_at.elapsed();
            for (key, answer) in keys.iter().zip(answers.drain(..)) {
                self.count(*key, answer, took);
            }
            let problem = match asked {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
            };
            self.fail(1, problem);
            connection = None;
        }
        self.tally
    }

    /// Waits until the next request is due. When that was; `None` at the end.
    async fn turn(&self) -> Option<Instant> {
        let (plan, now) = (&self.plan, Instant::now());
        let number = self.progress.next.fetch_add(plan.pipeline as u64, Relaxed);
        let is_over = self.progress.stop.load(Relaxed) || plan.requests.is_some_and(|count| number >= count);
        let due = match plan.rate {
            None => now,
            Some(rate) => self.begun + Duration::from_secs_f64(number as f64 / rate),
        };
        if is_over || due.max(now) >= self.begun + plan.duration {
            return None;
        }
        if due <= now {
            return Some(due);
        }
        sleep_until(due.into()).await;
        // A timer that fires late is our fault, not the service's.
        Some(Instant::now())
    }

    fn count(&mut self, key: u64, answer: Answer, took: Duration) {
        self.progress.answered.fetch_add(1, Relaxed);
        match answer {
            Answer::Allowed => {
                self.progress.allowed.fetch_add(1, Relaxed);
                if let Some(count) = usize::try_from(key).ok().and_then(|key| self.progress.admitted.get(key)) {
                    count.fetch_add(1, Relaxed);
                }
                self.tally.allowed += 1;
            }
            Answer::Denied => self.tally.denied += 1,
            Answer::Shed => self.tally.shed += 1,
            Answer::Failed(problem) => return self.fail(1, problem),
        }
        self.tally.took(took);
    }

    fn fail(&mut self, count: u64, problem: String) {
        self.progress.failed.fetch_add(count, Relaxed);
        self.tally.fail(count, problem);
    }
}
