//! Many tasks at once: what a decision costs the server, and how many there are in a second.

use std::time::{Duration, Instant, SystemTime};

use redis::Script;
use tollkeeper::{RedisStore, Traffic};
use tollkeeper_bench::{Numbers, Samples};

use crate::contestant::{Client, Clients, Limit, user};
use crate::promises::{Bound, Promises};
use crate::server::Server;

const ROUNDS: usize = 5;
const TASKS: [usize; 2] = [64, 512];

/// Who asks, and what they get.
struct Case {
    name: &'static str,
    limit: Limit,
    users: u64,
    expected: Expected,
    /// Decisions of one round: the quicker side does more of them, so that rounds are long enough to measure.
    classic: usize,
    tollkeeper: usize,
    promised_times_less_cpu: Option<f64>,
    /// For how long the state of a first request matters, if every request has to be written.
    written_for: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Allowed,
    Denied,
}

const CASES: [Case; 5] = [
    Case {
        name: "a million keys, allowed",
        limit: Limit::per_second(100),
        users: 1_000_000,
        expected: Expected::Allowed,
        classic: 16_384,
        tollkeeper: 65_536,
        promised_times_less_cpu: Some(4.0),
        written_for: Some(Duration::from_millis(10)),
    },
    // With a limit that refills slowly every state is found stored, where the first case finds most of them idle.
    Case {
        name: "20,000 stored keys, allowed",
        limit: Limit::per_day(1_000),
        users: 20_000,
        expected: Expected::Allowed,
        classic: 16_384,
        tollkeeper: 65_536,
        promised_times_less_cpu: None,
        written_for: Some(Duration::from_millis(86_400)),
    },
    Case {
        name: "one hot key, allowed",
        limit: Limit::per_second(1_000_000),
        users: 1,
        expected: Expected::Allowed,
        classic: 16_384,
        tollkeeper: 131_072,
        promised_times_less_cpu: Some(50.0),
        written_for: Some(Duration::from_millis(1)),
    },
    Case {
        name: "one hot key with `lease: auto`, allowed",
        limit: Limit::per_second(10_000_000).leased(),
        users: 1,
        expected: Expected::Allowed,
        classic: 16_384,
        tollkeeper: 524_288,
        promised_times_less_cpu: Some(50.0),
        written_for: None,
    },
    Case {
        name: "one attacker, denied",
        limit: Limit::per_day(10),
        users: 1,
        expected: Expected::Denied,
        classic: 16_384,
        tollkeeper: 262_144,
        promised_times_less_cpu: Some(1_000.0),
        written_for: None,
    },
];

/// What the rounds of one contestant measured.
#[derive(Default)]
struct Measured {
    cpu: Samples,
    main_thread: Samples,
    /// Of this process: the side of the client.
    client: Samples,
    rate: Samples,
}

pub async fn compare(promises: &mut Promises) {
    let mut rows = Vec::new();
    for case in &CASES {
        for tasks in TASKS {
            eprintln!("load: {}, {tasks} tasks", case.name);
            rows.push(race(case, tasks, promises).await);
        }
    }
    println!(
        "| case | tasks | classic µs | spread | tollkeeper µs | spread | times less \
         | main thread | piped classic µs | floor µs | requests a call |"
    );
    println!("|---|---:|---:|---|---:|---|---:|---:|---:|---:|---:|");
    rows.iter().for_each(|(cpu, _)| println!("{cpu}"));
    println!(
        "\n| case | tasks | classic/s | spread | tollkeeper/s | spread | times more \
         | piped classic/s | classic client µs | tollkeeper client µs |"
    );
    println!("|---|---:|---:|---|---:|---|---:|---:|---:|---:|");
    rows.iter().for_each(|(_, rate)| println!("{rate}"));
    println!();
}

/// One case with some tasks: the contestants take turns, after a round that does not count. Returns the two rows.
async fn race(case: &Case, tasks: usize, promises: &mut Promises) -> (String, String) {
    let server = Server::start();
    let Clients { classic, piped, tollkeeper, store } = Clients::connect(&server, case.limit, tasks).await;
    let mut contestants = [(classic, case.classic), (piped, case.classic), (tollkeeper, case.tollkeeper)]
        .map(|(clients, decisions)| (clients, decisions, Measured::default()));
    let mut floor = Samples::default();
    let mut traffic = store.traffic();
    for round in 0..=ROUNDS {
        for (clients, decisions, measured) in &mut contestants {
            let measured = (round > 0).then_some(measured);
            run(&server, case, clients, *decisions, round as u64, measured).await;
        }
        if let Some(written_for) = case.written_for {
            let cpu = run_floor(&server, case.users, case.tollkeeper, round as u64, written_for);
            if round > 0 {
                floor.push(cpu);
            }
        }
        if round == 0 {
            traffic = store.traffic();
        }
    }
    let requests_a_call = requests_a_call(&store, traffic);
    let [classic, piped, ours] = &contestants.map(|(.., measured)| measured);

    let times_less = classic.cpu.median() / ours.cpu.median();
    let times_more = ours.rate.median() / classic.rate.median();
    let name = format!("{}, {tasks} tasks", case.name);
    if let Some(target) = case.promised_times_less_cpu {
        promises.check(format!("{name}: times less CPU"), times_less, Bound::AtLeast, target);
        promises.check(format!("{name}: times more decisions a second"), times_more, Bound::Above, 1.0);
    }
    let floor = if case.written_for.is_some() { format!("{:.2}", floor.median()) } else { "-".into() };
    let start = format!("| {} | {tasks}", case.name);
    (
        format!(
            "{start} | {} | {} | {times_less:.1} | {:.1} | {:.2} | {floor} | {requests_a_call} |",
            shown(&classic.cpu, 2),
            shown(&ours.cpu, 3),
            classic.main_thread.median() / ours.main_thread.median(),
            piped.cpu.median(),
        ),
        format!(
            "{start} | {} | {} | {times_more:.1} | {:.0} | {:.1} | {:.2} |",
            shown(&classic.rate, 0),
            shown(&ours.rate, 0),
            piped.rate.median(),
            classic.client.median(),
            ours.client.median(),
        ),
    )
}

async fn run(
    server: &Server,
    case: &Case,
    clients: &[Client],
    decisions: usize,
    round: u64,
    measured: Option<&mut Measured>,
) {
    let (cpu, client, start) = (server.cpu(), client_cpu(), Instant::now());
    let each = decisions / clients.len();
    let unexpected = drive(clients, each, case.users, round, case.expected == Expected::Allowed).await;
    let (elapsed, client) = (start.elapsed(), client_cpu() - client);
    let used = server.cpu();
    let Some(measured) = measured else { return };
    assert_eq!(unexpected, 0, "{}: decisions were not as expected", case.name);
    let decisions = (each * clients.len()) as f64;
    measured.cpu.push((used.process - cpu.process) / decisions);
    measured.main_thread.push((used.main_thread - cpu.main_thread) / decisions);
    measured.client.push(client / decisions);
    measured.rate.push(decisions / elapsed.as_secs_f64());
}

/// The least that a decision can cost the server if every call has 64 requests and one call follows another: a script that
/// decides nothing. Returns microseconds of processor time.
fn run_floor(server: &Server, users: u64, decisions: usize, round: u64, written_for: Duration) -> f64 {
    const BATCH: usize = 64;
    let script = Script::new(include_str!("floor.lua"));
    let mut connection = server.client().get_connection().expect("connects");
    let mut numbers = Numbers::new(round << 32 | 0x77);
    let before = server.cpu();
    for _ in 0..decisions / BATCH {
        let mut keys: Vec<String> =
            (0..BATCH).map(|_| format!("tollkeeper{{{}}}0:floor", user((numbers.draw() >> 20) % users))).collect();
        keys.sort_unstable();
        keys.dedup();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        // A number as long as a state: microseconds, and three digits.
        let (state, expires) = (format!("-{}123", now.as_micros()), (now + written_for).as_millis() as u64 + 1);
        let mut call = script.arg(state);
        call.arg(expires);
        for key in &keys {
            call.key(key);
        }
        let _: redis::Value = call.invoke(&mut connection).expect("the script runs");
    }
    (server.cpu().process - before.process) / decisions as f64
}

/// Lets each client ask for random users one after another. Returns how many answers were not `expected`.
pub async fn drive(clients: &[Client], each: usize, users: u64, round: u64, expected: bool) -> usize {
    let tasks: Vec<_> = clients
        .iter()
        .cloned()
        .enumerate()
        .map(|(task, mut client)| {
            let mut numbers = Numbers::new(round << 32 | (task as u64 + 1));
            tokio::spawn(async move {
                let mut unexpected = 0;
                for _ in 0..each {
                    // High bits: the low ones of the first draws are alike in neighbouring seeds.
                    let user = user((numbers.draw() >> 20) % users);
                    unexpected += usize::from(client.decide(&user).await != expected);
                }
                unexpected
            })
        })
        .collect();
    let mut unexpected = 0;
    for task in tasks {
        unexpected += task.await.expect("a task ends");
    }
    unexpected
}

/// Since `before`; a dash when no call went out.
fn requests_a_call(store: &RedisStore, before: Traffic) -> String {
    let now = store.traffic();
    let (calls, requests) = (now.calls - before.calls, now.requests - before.requests);
    if calls == 0 { "-".into() } else { format!("{:.0}", requests as f64 / calls as f64) }
}

fn shown(samples: &Samples, digits: usize) -> String {
    let (least, most) = samples.spread();
    format!("{:.digits$} | {least:.digits$}..{most:.digits$}", samples.median())
}

/// Processor time of this process in microseconds, by the kernel's ticks of 10 ms.
fn client_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The name of the program is in parentheses and may contain anything; the state is the third field.
    let after_name = stat.rsplit_once(')').expect("as documented").1;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() * 10_000.0
}
