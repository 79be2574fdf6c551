//! Worker processes that start at the same moment, and their recordings.
//!
//! A benchmark includes `auditor`, `recording`, `worker` and this by `#[path]`, starts its `main` with `if let
//! Some(job) = Job::from_environment() { return job.run() }`, and starts a fleet with no arguments.

#![allow(dead_code, unreachable_pub)] // Each user takes a part.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use super::auditor::Request;
use super::recording::Recording;
use super::worker::{self, Job, READY, now_us};

/// Long enough for every process to receive the start time, on a busy machine.
const HEAD_START: Duration = Duration::from_millis(100);

/// What all processes of a fleet do.
pub struct Orders {
    pub url: String,
    /// The rule, as in a rules file.
    pub rule: serde_json::Value,
    pub processes: usize,
    pub callers: usize,
    pub costs: Vec<u32>,
    pub lasts: Duration,
    pub requests_per_caller: usize,
}

/// Running processes. Those that are left are killed when it is dropped, and their files removed.
pub struct Fleet {
    dir: PathBuf,
    begins_us: u64,
    workers: Vec<Worker>,
}

struct Worker {
    process: Child,
    /// Kept open: writing to a closed pipe fails.
    output: BufReader<ChildStdout>,
    job: Job,
    is_killed: bool,
}

impl Fleet {
    /// Starts this executable again as each of the workers; `arguments` lead it to `Job::from_environment`.
    pub fn start(orders: &Orders, arguments: &[&str]) -> Fleet {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Relaxed);
        let dir = folder_in_memory().join(format!("tollkeeper-fleet-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary folder");
        let mut fleet = Fleet { dir, begins_us: 0, workers: Vec::new() };
        for process in 0..orders.processes {
            let job = Job {
                url: orders.url.clone(),
                rule: orders.rule.clone(),
                lasts_us: orders.lasts.as_micros() as u64,
                callers: orders.callers,
                costs: orders.costs.clone(),
                recording: fleet.dir.join(process.to_string()),
                requests_per_caller: orders.requests_per_caller,
            };
            fleet.workers.push(Worker::start(job, arguments));
        }
        fleet.workers.iter_mut().for_each(Worker::wait_until_ready);
        fleet.begins_us = now_us() + HEAD_START.as_micros() as u64;
        for worker in &mut fleet.workers {
            let mut input = worker.process.stdin.take().expect("a pipe");
            writeln!(input, "{}", fleet.begins_us).expect("it listens");
        }
        fleet
    }

    /// Kills one process, this long after all started.
    pub fn kill(&mut self, process: usize, after: Duration) {
        let wait = (self.begins_us + after.as_micros() as u64).saturating_sub(now_us());
        sleep(Duration::from_micros(wait));
        let worker = &mut self.workers[process];
        let ended = worker.process.try_wait().expect("a child");
        assert!(ended.is_none(), "worker {process} ended before it could be killed");
        worker.process.kill().expect("it was running");
        worker.is_killed = true;
    }

    /// Waits for all, and reads their recordings. Every answer must have come from the store.
    pub fn requests(mut self) -> Vec<Vec<Request>> {
        self.workers.iter_mut().map(Worker::requests).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // It may have ended already.
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Worker {
    fn start(job: Job, arguments: &[&str]) -> Worker {
        let mut command = Command::new(std::env::current_exe().expect("an executable"));
        command.args(arguments).env(worker::VARIABLE, job.to_text()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starts again");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Worker { process, output, job, is_killed: false }
    }

    fn wait_until_ready(&mut self) {
        let mut lines = self.output.by_ref().lines();
        assert!(lines.any(|line| line.expect("text").contains(READY)), "a worker ended before it could begin");
    }

    fn requests(&mut self) -> Vec<Request> {
        let status = self.process.wait().expect("a child");
        assert!(self.is_killed || status.success(), "a worker failed: {status}");
        let recording = Recording::open(&self.job.recording, self.job.callers).expect("a recording");
        let mut requests = Vec::new();
        let unavailable = recording.read(&mut requests);
        assert_eq!(unavailable, 0, "answers that did not come from the store");
        requests
    }
}

/// On a disk, the first write to each page may wait for the disk, and callers must not.
fn folder_in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}
