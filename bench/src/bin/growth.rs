//! New keys from a thousand to ten million: what each costs, and the longest single call. Prints a line of JSON a step.
//!
//!     growth MOST_KEYS
//!
//! A busy machine stops every thread now and then, which looks like a long call. So beside the longest call is how much of one
//! was on the processor, how long calls were blocked, and as a control the longest step of a loop that only reads clocks, for
//! as long. What the host of a virtual machine takes can still look like time on the processor, in the control too.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use tollkeeper::Quota;

/// How long the thread waited for a processor is read between blocks of calls, because reading takes longer than a call.
const BLOCK: usize = 64;

fn main() {
    let most: usize = std::env::args().nth(1).and_then(|most| most.parse().ok()).unwrap_or(10_000_000);
    let limiter = tollkeeper::keyed(Quota::per_hour(1)).expect("valid").with_max_keys(12_000_000);
    let before = resident_bytes();
    let thread = Thread::new();
    let (mut added, mut step) = (0, 1_000);
    while step <= most {
        let mut nanos: Vec<u32> = Vec::with_capacity(step - added);
        // Touched before, so that pages of this list are not taken inside a measured call.
        nanos.resize(step - added, 1);
        let own = nanos.capacity() * size_of::<u32>();
        let mut longest = Longest::default();
        for (block, taken) in nanos.chunks_mut(BLOCK).enumerate() {
            // In this order, and read the other way round afterwards: a pause between two readings never looks like a long call.
            let (before, begun) = (thread.times(), Instant::now());
            let mut ran = before.running;
            for (nth, taken) in taken.iter_mut().enumerate() {
                let start = Instant::now();
                assert!(limiter.check(&(added + block * BLOCK + nth)).is_allowed());
                let elapsed = start.elapsed();
                *taken = u32::try_from(elapsed.as_nanos()).unwrap_or(u32::MAX);
                let runs = running();
                longest.running = longest.running.max(elapsed.min(runs - ran));
                ran = runs;
            }
            let (elapsed, after) = (begun.elapsed(), thread.times());
            longest.blocked = longest.blocked.max(after.blocked_since(before, elapsed));
        }
        let total: Duration = nanos.iter().map(|nanos| Duration::from_nanos(u64::from(*nanos))).sum();
        nanos.sort_unstable();
        let bytes = resident_bytes().saturating_sub(before + own) as f64 / step as f64;
        let most_of_all = nanos[(nanos.len() as f64 * 0.9999) as usize];
        let machine = longest_step_of_a_clock(total);
        println!(
            "{}",
            serde_json::json!({
                "keys": step, "ns": total.as_nanos() as f64 / nanos.len() as f64, "bytes": bytes,
                "p9999_us": f64::from(most_of_all) / 1e3, "longest_us": f64::from(nanos[nanos.len() - 1]) / 1e3,
                "running_us": micros(longest.running), "blocked_us": micros(longest.blocked),
                "machine_us": micros(machine.0), "machine_running_us": micros(machine.1),
            })
        );
        (added, step) = (step, step * 10);
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// What the longest calls did.
#[derive(Default)]
struct Longest {
    /// On a processor, by one call.
    running: Duration,
    /// Neither on a processor nor waiting for one, by the calls of one block: waiting for a lock, of ours or of the system.
    blocked: Duration,
}

/// How long a thread has been in two of its states, and how often it has left the processor of its own accord, to wait for something.
#[derive(Clone, Copy)]
struct Times {
    running: Duration,
    /// Waiting for a processor.
    ready: Duration,
    waits: libc::c_long,
}

impl Times {
    /// How much of this time the thread was in a third state: waiting for something. Without a wait, the rest is what the host of a virtual machine
    /// gave to others.
    fn blocked_since(self, before: Times, elapsed: Duration) -> Duration {
        let known = self.running + self.ready - before.running - before.ready;
        if self.waits > before.waits { elapsed.saturating_sub(known) } else { Duration::ZERO }
    }
}

/// This thread, as the scheduler of Linux sees it.
struct Thread {
    schedstat: File,
}

impl Thread {
    fn new() -> Thread {
        Thread { schedstat: File::open("/proc/thread-self/schedstat").expect("Linux") }
    }

    /// The file knows the time on a processor too, but as of the last tick of the system.
    fn times(&self) -> Times {
        let mut text = [0; 64];
        let length = self.schedstat.read_at(&mut text, 0).expect("readable");
        let text = std::str::from_utf8(&text[..length]).expect("digits");
        let ready = text.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).expect("a number");
        Times { running: running(), ready: Duration::from_nanos(ready), waits: waits() }
    }
}

/// How long this thread has been on a processor.
fn running() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a time to where it is told.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How often this thread has left the processor to wait for something.
fn waits() -> libc::c_long {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes to where it is told, and a structure of integers may be all zero.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw
    }
}

/// What the machine adds to a call now and then: the longest step of a loop that only reads clocks, and how much of one the system believes
/// to have been on a processor.
fn longest_step_of_a_clock(duration: Duration) -> (Duration, Duration) {
    let (mut longest, mut longest_running) = (Duration::ZERO, Duration::ZERO);
    let (begun, mut ran) = (Instant::now(), running());
    let mut before = begun;
    while before - begun < duration {
        let (runs, now) = (running(), Instant::now());
        longest = longest.max(now - before);
        longest_running = longest_running.max((now - before).min(runs - ran));
        (before, ran) = (now, runs);
    }
    (longest, longest_running)
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("known");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}
