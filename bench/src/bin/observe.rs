//! What it costs to observe traffic: the same service with and without, and with an audit whose database hangs or is gone.
//!
//! Every contestant is the real binary, spoken to in the Redis protocol by pipelines over loopback, which is where a decision
//! is cheapest and so the cost of looking at it is greatest. Rounds take turns.
//!
//!     cargo build --release && cargo run --release --manifest-path bench/Cargo.toml --bin observe [ROUNDS] [BINARY]
//!
//! With `TOLLGATE_BENCH_POSTGRES=postgres://...` two more have their audit in that database. It is stopped (SIGSTOP) for the
//! second half of the rounds if `TOLLGATE_BENCH_POSTGRES_PID` names its process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use tollgate_bench::{Contestant, Numbers, race};

/// Commands in a pipeline, and pipelines in a round.
const DEPTH: usize = 256;
const PIPELINES: usize = 200;

/// Half of the requests are allowed; or one client hammers and nearly all are denied.
const TRAFFIC: [(&str, usize, &str); 2] =
    [("10,000 users, allowed", 10_000, "1_000_000/s"), ("10 users, denied", 10, "1/h")];

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(15);
    let binary = std::env::args().nth(2).unwrap_or_else(|| "target/release/tollgate".into());
    let database = std::env::var("TOLLGATE_BENCH_POSTGRES").ok();
    println!("| traffic | contestant | ns a decision | spread | times without |");
    println!("|---|---|---:|---|---:|");
    for (traffic, users, limit) in TRAFFIC {
        let mut settings = vec![("not observed", "insight: false".to_string()), ("observed", String::new())];
        // Nobody listens there.
        settings.push(("observed, database gone", "audit: { database: 'postgres://nobody@127.0.0.1:1/none' }".into()));
        if let Some(url) = &database {
            settings.push(("observed, database there", format!("audit: {{ database: '{url}' }}")));
        }
        let measured = measure(rounds, &binary, users, limit, &settings);
        report(traffic, &measured);
        if let Ok(pid) = std::env::var("TOLLGATE_BENCH_POSTGRES_PID") {
            signal("STOP", &pid);
            let stopped =
                [settings[0].clone(), ("observed, database stopped", settings.last().expect("some").1.clone())];
            report(traffic, &measure(rounds, &binary, users, limit, &stopped));
            signal("CONT", &pid);
        }
    }
}

type Measured = (String, f64, (f64, f64));

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
    contestants.iter().map(|one| (one.name.clone(), one.median(), one.spread())).collect()
}

fn report(traffic: &str, measured: &[Measured]) {
    let without = measured[0].1;
    for (name, median, (fastest, slowest)) in measured {
        println!("| {traffic} | {name} | {median:.0} | {fastest:.0}..{slowest:.0} | {:.2} |", median / without);
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
        let file = std::env::temp_dir().join(format!("tollgate-observe-{}.yaml", std::process::id()));
        std::fs::write(&file, config).expect("a file");
        let mut child = Command::new(binary)
            .args(["serve", "--log", "error", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary; build it with `cargo build --release`");
        let lines = BufReader::new(child.stdout.take().expect("output")).lines().map_while(Result::ok);
        let mut lines = lines.skip_while(|line| !line.contains("redis://"));
        let line = lines.next().expect("an address");
        let address = line.split("redis://").nth(1).expect("an address").trim().to_string();
        std::thread::spawn(move || lines.for_each(drop));
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("a socket");
        Gate { child, stream }
    }

    /// One pipeline, and all of its answers.
    fn decide(&mut self, users: usize, numbers: &mut Numbers) {
        let mut commands = String::new();
        for _ in 0..DEPTH {
            let user = numbers.draw() as usize % users;
            commands.push_str(&format!("TOLLGATE.CHECK user_id {user} ip 203.0.113.9 method GET path /orders\r\n"));
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
