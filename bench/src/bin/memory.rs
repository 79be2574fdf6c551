//! The simple door beside governor's keyed limiter: time and memory.
//!
//! Both get the same quota and the same `String` keys, and use their default clocks. Ours answers with the whole
//! decision (remaining, reset and exact wait), governor's with yes or no.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::Command;
use std::thread;

use governor::DefaultKeyedRateLimiter;
use tollkeeper::{Keyed, Quota};
use tollkeeper_bench::{Contestant, Numbers, race};

const KEYS: usize = 1_000_000;
const HOT_CHECKS: usize = 1_000_000;
const BATCH: usize = 16;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("resident-tollkeeper") => return fill_tollkeeper(),
        Some("resident-governor") => return fill_governor(),
        _ => {}
    }
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(15);
    println!("| case | tollkeeper ns | spread | governor ns | spread | times faster |");
    println!("|---|---:|---|---:|---|---:|");
    hot_key(rounds, 1, Mood::Allowed);
    hot_key(rounds, 1, Mood::Denied);
    hot_key(rounds, 2, Mood::Allowed);
    hot_key(rounds, 2, Mood::Denied);
    uniform(rounds, Mood::Allowed);
    uniform(rounds, Mood::Denied);
    println!();
    memory();
}

/// Whether most requests of a case pass.
#[derive(Clone, Copy)]
enum Mood {
    Allowed,
    Denied,
}

impl Mood {
    fn name(self) -> &'static str {
        match self {
            Mood::Allowed => "allowed",
            Mood::Denied => "denied",
        }
    }

    /// A token every 36 s and a burst that no round exhausts, so that every key stays in use; or one token an hour.
    fn tollkeeper(self) -> Keyed {
        let quota = match self {
            Mood::Allowed => Quota::per_hour(100).burst(50_000_000),
            Mood::Denied => Quota::per_hour(1),
        };
        tollkeeper::keyed(quota).expect("valid")
    }

    fn governor(self) -> DefaultKeyedRateLimiter<String> {
        let count = |count| NonZeroU32::new(count).expect("not zero");
        governor::RateLimiter::keyed(match self {
            Mood::Allowed => governor::Quota::per_hour(count(100)).allow_burst(count(50_000_000)),
            Mood::Denied => governor::Quota::per_hour(count(1)),
        })
    }
}

fn hot_key(rounds: usize, threads: usize, mood: Mood) {
    let key = String::from("user-0000042");
    let (ours, theirs) = (mood.tollkeeper(), mood.governor());
    let mut contestants = [
        Contestant::new("tollkeeper", || on_threads(threads, || black_box(&ours.check(black_box(&key))).is_allowed())),
        Contestant::new("governor", || on_threads(threads, || black_box(&theirs.check_key(black_box(&key))).is_ok())),
    ];
    race(rounds, &mut contestants);
    let plural = if threads == 1 { "thread" } else { "threads" };
    report(&format!("one hot key, {threads} {plural}, {}", mood.name()), &contestants);
}

/// Time is counted once however many threads there are: two that do not hinder each other take half as long.
fn on_threads(threads: usize, check: impl Fn() -> bool + Sync) -> usize {
    let many = || (0..HOT_CHECKS).filter(|_| check()).count();
    if threads == 1 {
        black_box(many());
    } else {
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| black_box(many())))));
    }
    threads * HOT_CHECKS
}

fn uniform(rounds: usize, mood: Mood) {
    let (ours, theirs) = (mood.tollkeeper(), mood.governor());
    for nth in Numbers::new(1).shuffled(KEYS) {
        let key = name(nth);
        ours.check(&key);
        let _ = theirs.check_key(&key);
    }
    // In another order than that in which they were added, and side by side in memory as requests come.
    let keys: Vec<String> = Numbers::new(2).shuffled(KEYS).into_iter().map(name).collect();
    let mut decisions = Vec::with_capacity(BATCH);
    let mut contestants = [
        Contestant::new("one by one", || {
            keys.iter().for_each(|key| _ = black_box(&ours.check(key)));
            KEYS
        }),
        Contestant::new("governor", || {
            keys.iter().for_each(|key| _ = black_box(&theirs.check_key(key)));
            KEYS
        }),
        Contestant::new("batches of 16", || {
            for batch in keys.chunks(BATCH) {
                decisions.clear();
                ours.check_many_into(batch, &mut decisions);
                black_box(&decisions);
            }
            KEYS
        }),
    ];
    race(rounds, &mut contestants);
    let [one_by_one, governor, batches] = contestants;
    let mood = mood.name();
    let [one_by_one, governor] = &[one_by_one, governor];
    report_pair(&format!("a million keys, one by one, {mood}"), one_by_one, governor);
    report_pair(&format!("a million keys, batches of 16, {mood}"), &batches, governor);
}

fn name(nth: usize) -> String {
    format!("user-{nth:07}")
}

fn report(case: &str, contestants: &[Contestant<'_>; 2]) {
    report_pair(case, &contestants[0], &contestants[1]);
}

fn report_pair(case: &str, ours: &Contestant<'_>, theirs: &Contestant<'_>) {
    let spread = |contestant: &Contestant<'_>| {
        let (fastest, slowest) = contestant.spread();
        format!("{fastest:.1}..{slowest:.1}")
    };
    println!(
        "| {case} | {:.1} | {} | {:.1} | {} | {:.2} |",
        ours.median(),
        spread(ours),
        theirs.median(),
        spread(theirs),
        theirs.median() / ours.median()
    );
}

/// Each in a process of its own, so that neither sees what the other's allocator keeps.
fn memory() {
    println!("| memory at a million keys | bytes a key, resident |");
    println!("|---|---:|");
    for name in ["tollkeeper", "governor"] {
        let this = std::env::current_exe().expect("this program");
        let output = Command::new(this).arg(format!("resident-{name}")).output().expect("runs");
        println!("| {name} | {} |", String::from_utf8_lossy(&output.stdout).trim());
    }
    let bytes = Mood::Allowed.tollkeeper().memory_bytes();
    println!("| tollkeeper, set aside (`memory_bytes`) | {:.1} |", bytes as f64 / KEYS as f64);
}

/// With one token an hour no key can be dropped again.
fn fill_tollkeeper() {
    let before = resident_bytes();
    let limiter = Mood::Denied.tollkeeper();
    (0..KEYS).for_each(|nth| assert!(limiter.check(&name(nth)).is_allowed()));
    assert_eq!(limiter.len(), KEYS);
    print_bytes_a_key(before);
}

fn fill_governor() {
    let before = resident_bytes();
    let limiter = Mood::Denied.governor();
    (0..KEYS).for_each(|nth| assert!(limiter.check_key(&name(nth)).is_ok()));
    assert_eq!(limiter.len(), KEYS);
    print_bytes_a_key(before);
}

fn print_bytes_a_key(before: usize) {
    println!("{:.1}", (resident_bytes() - before) as f64 / KEYS as f64);
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("known");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}
