//! One of many processes: callers that use the same key as fast as they are answered, and record the answers.

#![allow(dead_code, unreachable_pub)] // Each user takes a part.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollkeeper::{Descriptor, Limiter, Policy, RedisOptions, RedisStore, RuleSpec};

use super::auditor::Request;
use super::recording::Recording;

/// The variable that makes a process a worker, with its job.
pub const VARIABLE: &str = "TOLLKEEPER_TEST_WORKER";

/// What a worker prints when it is ready.
pub const READY: &str = "ready to begin";

/// What a worker does.
#[derive(Clone, Debug)]
pub struct Job {
    /// The store.
    pub url: String,
    /// The rule, as in a rules file.
    pub rule: serde_json::Value,
    pub lasts_us: u64,
    /// How many callers; the costs are assigned to them in turn.
    pub callers: usize,
    pub costs: Vec<u32>,
    /// Where to write, and how much room each caller has.
    pub recording: PathBuf,
    pub requests_per_caller: usize,
}

impl Job {
    /// For the variable of a worker.
    pub fn to_text(&self) -> String {
        let Job { url, rule, lasts_us, callers, costs, recording, requests_per_caller } = self;
        serde_json::json!([url, rule, lasts_us, callers, costs, recording, requests_per_caller]).to_string()
    }

    /// From the variable; `None` in a process that is not a worker.
    pub fn from_environment() -> Option<Job> {
        let text = std::env::var(VARIABLE).ok()?;
        let (url, rule, lasts_us, callers, costs, recording, requests_per_caller) =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{VARIABLE} is no job: {error}"));
        Some(Job { url, rule, lasts_us, callers, costs, recording, requests_per_caller })
    }

    /// Prints `READY`, reads from standard input when to start, and works until the end.
    pub fn run(self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(self.work());
    }

    async fn work(self) {
        let rule: RuleSpec = serde_json::from_value(self.rule.clone()).expect("a rule");
        // A record has room for four seconds. Only the store may answer, however busy the machine.
        let options = RedisOptions { deadline: Duration::from_secs(4), ..RedisOptions::default() };
        let store = RedisStore::connect(&self.url, options).await.expect("the store answers");
        let limiter = Arc::new(Limiter::new(Policy::new([rule]).expect("a valid rule"), store));
        let recording = Recording::create(&self.recording, self.callers, self.requests_per_caller);
        let recording = Arc::new(recording.expect("a new file"));
        println!("{READY}");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a line");
        let begins_us: u64 = line.trim().parse().expect("the moment to begin");
        let callers: Vec<_> = (0..self.callers)
            .map(|caller| {
                let cost = self.costs[caller % self.costs.len()];
                tokio::spawn(call(
                    caller,
                    cost,
                    limiter.clone(),
                    recording.clone(),
                    begins_us..begins_us + self.lasts_us,
                ))
            })
            .collect();
        for caller in callers {
            caller.await.expect("a caller does not fail");
        }
    }
}

async fn call(caller: usize, cost: u32, limiter: Arc<Limiter>, recording: Arc<Recording>, during_us: Range<u64>) {
    let request = Descriptor::new([("user", "a")]).with_cost(cost);
    let mut pen = recording.pen(caller, during_us.start);
    let wait = during_us.start.saturating_sub(now_us());
    tokio::time::sleep(Duration::from_micros(wait)).await;
    let mut asked_us = now_us();
    while asked_us < during_us.end {
        let verdict = limiter.check(&request).await.expect("the cost is a number");
        // The time of an answer is that of the next request: one clock reading per request.
        let answered_us = now_us();
        if verdict.is_degraded() {
            pen.count_unavailable();
        } else {
            pen.write(Request { asked_us, answered_us, cost, admitted: verdict.is_allowed() });
        }
        asked_us = answered_us;
        // A local decision never yields; the tasks that fetch new leases need to run too.
        tokio::task::consume_budget().await;
    }
}

/// The clock that a store on this machine uses, in whole microseconds. No system call where Linux has a vDSO.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64
}
