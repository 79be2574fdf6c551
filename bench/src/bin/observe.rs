//! What it costs to observe traffic: the same service with and without, and with an audit whose database hangs or is gone.
//!
//! Every contestant is the real binary, spoken to in the Redis protocol by pipelines over loopback, which is where a decision
//! is cheapest and so the cost of looking at it is greatest. Rounds take turns. Beside the fastest round stands the processor time
//! that the service took for each decision in all of them, reading notes and writing to the audit included.
//!
//!     cargo build --profile dist && cargo run --release --manifest-path bench/Cargo.toml --bin observe [ROUNDS] [BINARY]
//!
//! With `TOLLKEEPER_BENCH_POSTGRES=postgres://...` one more has its audit in that database, and if `TOLLKEEPER_BENCH_POSTGRES_PID` names
//! its process, another finds it stopped (SIGSTOP).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tollkeeper_bench::{Contestant, Numbers, race};

/// Commands in a pipeline, and pipelines in a round.
const DEPTH: usize = 256;
const PIPELINES: usize = 200;

/// Everybody passes; or a few hammer and nearly all are denied.
const TRAFFIC: [(&str, usize, &str); 2] =
    [("10,000 users, allowed", 10_000, "1_000_000/s"), ("10 users, denied", 10, "1/h")];

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(15);
    let binary = std::env::args().nth(2).unwrap_or_else(|| "target/dist/tollkeeper".into());
    let database = std::env::var("TOLLKEEPER_BENCH_POSTGRES").ok();
    println!("| traffic | contestant | fastest ns | times | processor ns | times |");
    println!("|---|---|---:|---:|---:|---:|");
    for (traffic, users, limit) in TRAFFIC {
        let mut settings = vec![("not observed", "insight: false".to_string()), ("observed", String::new())];
        // Nobody listens there.
        settings.push(("observed, database gone", "audit: { database: 'postgres://nobody@127.0.0.1:1/none' }".into()));
        if let Some(url) = &database {
            settings.push(("observed, database there", format!("audit: {{ database: '{url}' }}")));
        }
        let measured = measure(rounds, &binary, users, limit, &settings);
        report(traffic, &measured);
        if let Ok(pid) = std::env::var("TOLLKEEPER_BENCH_POSTGRES_PID") {
            signal("STOP", &pid);
            let stopped =
                [settings[0].clone(), ("observed, database stopped", settings.last().expect("some").1.clone())];
            report(traffic, &measure(rounds, &binary, users, limit, &stopped));
            signal("CONT", &pid);
        }
    }
}

/// A name, the fastest round and the processor time, in nanoseconds a decision.
type Measured = (String, f64, f64);

fn measure(rounds: usize, binary: &str, users: usize, limit: &str, settings: &[(&str, String)]) -> Vec<Measured> {
    let mut gates: Vec<(&str, Gate)> =
        settings.iter().map(|(name, setting)| (*name, Gate::start(binary, limit, setting))).collect();
    let mut contestants: Vec<Contestant<'_>> = gates
        .iter_mut()
        .map(|(name, gate)| {
            let mut numbers = Numbers::new(7);
            Contestant::new(*name, move || {
                (0..PIPELINES).for_each(|_| gate.decide(users, &mut numbers));
                DEPTH * PIPELINES
            })
        })
        .collect();
    race(rounds, &mut contestants);
    let fastest: Vec<(String, f64)> = contestants.iter().map(|one| (one.name.clone(), one.spread().0)).collect();
    drop(contestants);
    // One round more than count, which all did alike.
    let decisions = ((rounds + 1) * DEPTH * PIPELINES) as f64;
    let processor = gates.iter().map(|(_, gate)| gate.processor_nanos() as f64 / decisions);
    fastest.into_iter().zip(processor).map(|((name, fastest), processor)| (name, fastest, processor)).collect()
}

fn report(traffic: &str, measured: &[Measured]) {
    let (_, without, processor_without) = &measured[0];
    for (name, fastest, processor) in measured {
        let (times, processor_times) = (fastest / without, processor / processor_without);
        println!("| {traffic} | {name} | {fastest:.0} | {times:.2} | {processor:.0} | {processor_times:.2} |");
    }
}

fn signal(signal: &str, pid: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), pid]).status();
    assert!(sent.is_ok_and(|status| status.success()), "cannot send {signal} to {pid}");
}

/// A running service.
struct Gate {
    child: Child,
    stream: TcpStream,
}

impl Gate {
    fn start(binary: &str, limit: &str, setting: &str) -> Gate {
        let config = format!(
            "listen: {{ http: 127.0.0.1:0, resp: 127.0.0.1:0 }}\n{setting}\nrules:\n\
             - {{ name: everybody, key: global, limit: 1_000_000/s }}\n\
             - {{ name: per-user, key: '{{user_id}}', limit: {limit} }}\n"
        );
        let file = std::env::temp_dir().join(format!("tollkeeper-observe-{}.yaml", std::process::id()));
        std::fs::write(&file, config).expect("a file");
        let mut child = Command::new(binary)
            .args(["serve", "--log", "error", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary; build it with `cargo build --profile dist`");
        let lines = BufReader::new(child.stdout.take().expect("output")).lines().map_while(Result::ok);
        let mut lines = lines.skip_while(|line| !line.contains("redis://"));
        let line = lines.next().expect("an address");
        let address = line.split("redis://").nth(1).expect("an address").trim().to_string();
        std::thread::spawn(move || lines.for_each(drop));
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("a socket");
        Gate { child, stream }
    }

    /// What all of its threads have used of the processors.
    fn processor_nanos(&self) -> u64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("Linux");
        let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("schedstat")).ok();
        let used = threads.flatten().filter_map(of).filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
        used.sum()
    }

    /// One pipeline, and all of its answers.
    fn decide(&mut self, users: usize, numbers: &mut Numbers) {
        let mut commands = String::new();
        for _ in 0..DEPTH {
            let user = numbers.draw() as usize % users;
            commands.push_str(&format!("TOLLKEEPER.CHECK user_id {user} ip 203.0.113.9 method GET path /orders\r\n"));
        }
        // The last answer is known by its text.
        commands.push_str("ECHO over-and-out\r\n");
        self.stream.write_all(commands.as_bytes()).expect("sent");
        let (mut tail, mut buffer) = (Vec::new(), [0; 65_536]);
        while !tail.ends_with(b"over-and-out\r\n") {
            let read = self.stream.read(&mut buffer).expect("an answer");
            assert!(read > 0, "the service has gone");
            tail.extend_from_slice(&buffer[..read]);
            tail.drain(..tail.len().saturating_sub(16));
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
