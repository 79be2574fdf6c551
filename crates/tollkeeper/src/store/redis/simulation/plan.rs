//! What a seed means: where the servers are, who asks, and what fails.

use std::time::Duration;

use tollkeeper_core::{Algorithm, FailurePolicy, Rule, RuleSpec};

use crate::store::redis::link::simulated::chance::Chance;
use crate::store::redis::link::simulated::network::{Mood, Travel};

/// One run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) hosts: Vec<String>,
    pub(super) instances: usize,
    pub(super) clients: usize,
    pub(super) travel: Travel,
    pub(super) shuffle: u64,
    pub(super) deadline: Duration,
    pub(super) length: Duration,
    /// In order. Without any that is the server's, no rule may answer by its failure policy.
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// All connections to a server are reset.
    Cut { host: String },
    /// A server does nothing for a while, or nothing gets through to it.
    Stall { host: String, pause: Duration },
    /// It answers with errors, or with nonsense.
    Mood { host: String, mood: Mood, pause: Duration },
    /// It has reached its `maxmemory`.
    Full { host: String, pause: Duration },
    /// It ends, and comes back with its data or without.
    Restart { host: String, pause: Duration, keeps_data: bool },
    /// Its clock jumps forward, or back.
    Step { host: String, by_ms: i64 },
    /// The slot of this key moves to another server of the cluster, key by key.
    Move { key: &'static str, pause: Duration },
    /// It ends, and a replica that has not heard of the last writes takes its place, at another address.
    Failover { host: String, lag: Duration, pause: Duration },
    /// This process gets no time for a while.
    Standstill { pause: Duration },
}

impl Plan {
    pub(super) fn draw(chance: &mut Chance) -> Plan {
        let ms = Duration::from_millis;
        let hosts: Vec<String> = match chance.below(3) {
            0 => vec!["10.0.0.1:6379".into(), "10.0.0.2:6379".into()],
            _ => vec!["10.0.0.1:6379".into()],
        };
        let travel = Travel { least: chance.pick(&[0, 0, 0, 1, 2, 5, 20]), jitter: chance.pick(&[0, 0, 1, 3, 10]) };
        // Above what a call takes at most, so that lateness is a fault: the first one may need three round trips, to connect,
        // to learn that the server does not know the script, and to send its text.
        let deadline = ms(20.max(6 * (travel.least + travel.jitter) + 10));
        let length = ms(300 + chance.below(1_200));
        let count = chance.pick(&[0, 0, 1, 2, 4]);
        let mut faults: Vec<(Duration, Fault)> = (0..count).map(|_| Plan::fault(chance, &hosts, length)).collect();
        for _ in 0..chance.pick(&[0, 0, 1, 3]) {
            let at = ms(chance.below(length.as_millis() as u64));
            faults.push((at, Fault::Standstill { pause: ms(chance.pick(&[10, 50, 150, 300])) }));
        }
        faults.sort_by_key(|(at, _)| *at);
        Plan {
            hosts,
            instances: 1 + chance.below(3) as usize,
            clients: 2 + chance.below(7) as usize,
            travel,
            shuffle: chance.pick(&[0, 2, 4, 8]),
            deadline,
            length,
            faults,
        }
    }

    fn fault(chance: &mut Chance, hosts: &[String], length: Duration) -> (Duration, Fault) {
        let ms = Duration::from_millis;
        let host = hosts[chance.below(hosts.len() as u64) as usize].clone();
        let pause = ms(chance.pick(&[5, 30, 100, 400, 1_500]));
        let is_cluster = hosts.len() > 1;
        let fault = match chance.below(14) {
            0..=2 => Fault::Cut { host },
            3 | 4 => Fault::Stall { host, pause },
            5 => Fault::Mood { host, mood: Mood::Failing, pause },
            6 => Fault::Mood { host, mood: Mood::Babbling, pause },
            7 => Fault::Full { host, pause },
            8 => Fault::Restart { host, pause, keeps_data: true },
            9 | 10 => Fault::Step { host, by_ms: chance.pick(&[-10_000, -1_000, -50, 50, 1_000, 10_000]) },
            11 | 12 if is_cluster => Fault::Move { key: chance.pick(&["k", "k0", "k1", "r0"]), pause },
            13 if is_cluster => Fault::Failover { host, lag: ms(chance.pick(&[0, 1, 10, 50])), pause },
            _ => Fault::Restart { host, pause, keeps_data: false },
        };
        (ms(chance.below(length.as_millis() as u64)), fault)
    }

    /// Whether the servers are well all the time, whatever their clocks show.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.iter().all(|(_, fault)| matches!(fault, Fault::Standstill { .. } | Fault::Step { .. }))
    }

    pub(super) fn is_still(&self) -> bool {
        self.faults.is_empty()
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.hosts.len() > 1
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.is_cluster() { "redis+cluster" } else { "redis" };
        format!("{scheme}://{}", self.hosts.join(","))
    }
}

/// Tokens a second and at most, of `steady`, `open` and `local`.
pub(super) const PACE: (u32, u32) = (20, 10);
/// The same of `leased`.
pub(super) const LEASED: (u32, u32) = (200, 100);
/// Slots of `slots`, and for how long each is held.
pub(super) const SLOTS: (usize, Duration) = (3, Duration::from_secs(2));
/// What the buckets hold of which every token is accounted for. Little comes back during a run.
pub(super) const STOCK: u32 = 20_000;

/// What `day` admits in a day, and how long after the start of the run the next day begins for it.
pub(super) const TODAY: (u32, Duration) = (60, Duration::from_secs(3));

/// A request names the rules that apply to it by its attributes.
pub(super) fn rules() -> Vec<RuleSpec> {
    let rule = |name: &str, limit: String| {
        Rule::new(name).key(format!("{{{name}}}")).limit(limit).on_store_failure(FailurePolicy::Closed)
    };
    let paced =
        |(per_second, burst): (u32, u32), name: &str| rule(name, format!("{per_second}/s")).burst(u64::from(burst));
    let stocked = |name: &str| rule(name, format!("{STOCK}/day"));
    let calendar = |unit: &str, count: u32, zone: &str| RuleSpec {
        timezone: Some(zone.into()),
        lease: Some("auto".into()),
        ..rule(unit, format!("{count}/{unit}")).algorithm(Algorithm::FixedWindow)
    };
    vec![
        paced(PACE, "steady"),
        paced(PACE, "open").on_store_failure(FailurePolicy::Open),
        paced(PACE, "local").on_store_failure(FailurePolicy::Local),
        RuleSpec { lease: Some("auto".into()), ..paced(LEASED, "leased") },
        RuleSpec { lease: Some(50.into()), ..stocked("hoard") },
        stocked("bucket"),
        stocked("window").algorithm(Algorithm::FixedWindow),
        calendar("month", STOCK, "Europe/Berlin"),
        calendar("day", TODAY.0, "Pacific/Tarawa"),
        stocked("log").algorithm(Algorithm::SlidingWindowLog),
        stocked("left"),
        paced((5, 5), "right"),
        rule("slots", SLOTS.0.to_string()).algorithm(Algorithm::Concurrency).hold("2s"),
    ]
}
