//! The service on a Redis of its own.

use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::{Service, file};

/// What it runs on, and how large it is.
pub(crate) struct Loaded {
    service: Service,
    redis: Server,
}

/// CPU time so far, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) service: f64,
    pub(crate) redis: f64,
    /// By this process, which makes the load.
    pub(crate) load: f64,
}

/// The limit of the key that all clients share: so many a second, and as many at once.
pub(crate) const HOT: u32 = 100;

/// Fails open, so that a store that is taken for failed would show.
fn rules() -> String {
    format!(
        "rules:
  - {{ name: hot, key: '{{hot}}', limit: {HOT}/s, on_store_failure: open }}
  - {{ name: user, key: '{{user}}', limit: 5/s, burst: 10, on_store_failure: open }}
  - {{ name: window, key: '{{user}}', limit: 1000/min, algorithm: sliding_window_log, on_store_failure: open }}
  - {{ name: jobs, key: '{{job}}', limit: 10, algorithm: concurrency, hold: 5s, on_store_failure: closed }}
  - {{ name: tokens, key: '{{tokens}}', limit: '1,000,000/h', on_store_failure: closed }}
"
    )
}

impl Loaded {
    /// With this `store.timeout`.
    pub(crate) fn start(timeout: &str) -> Loaded {
        let redis = Server::start(Kind::Redis7);
        let listen = "listen: { connections: 2000, connections_per_address: 2000 }";
        let store = format!("store: {{ url: '{}', timeout: {timeout} }}", redis.url());
        let config = file(&format!("{listen}\n{store}\n{}", rules()), "yaml");
        let free = "127.0.0.1:0";
        let service = Service::start(&["serve", "--http", free, "--grpc", free, "--resp", free, "--config", &config]);
        Loaded { service, redis }
    }

    pub(crate) fn spent(&self) -> Spent {
        Spent {
            service: cpu_seconds(self.service.pid()),
            redis: cpu_seconds(self.redis.pid()),
            load: cpu_seconds(std::process::id()),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.service.http
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.service.pid())).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        resident.and_then(|kib| kib.trim().parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    }

    /// How many files are open, connections included.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.service.pid())).map_or(0, Iterator::count)
    }

    /// Warnings and errors in the log that are not about overload.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let is_complaint =
            |line: &&str| (line.contains("ERROR") || line.contains("WARN")) && !line.contains("overloaded");
        self.service.log().lines().filter(is_complaint).map(str::to_string).collect()
    }
}

/// User and system time of a process and its threads.
fn cpu_seconds(pid: u32) -> f64 {
    /// The unit of /proc, on every Linux.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything; the 12th and 13th field after it are what is asked for.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}
