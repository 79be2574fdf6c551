//! One run over logs: every request is counted, and decided where there are rules.

use std::sync::Arc;

use tollkeeper::{Charge, Key, Policy, Request as _, Rule, RuleSpec};
use tollkeeper_logs::Entry;

use crate::facts::{Asks, Facts, Witness};
use crate::hot_keys::HotKeys;
use crate::reader::{self, Log, Progress, ReadReport};
use crate::request::{LogRequest, Naming};
use crate::routes::{self, Routes};
use crate::timeline::Counts;
use crate::traffic::{HOT_ROOM, Said, Traffic, hash_of_key};
use crate::trial::{Fate, Trial};

/// What to find out.
#[derive(Debug)]
pub struct Options {
    /// Which attributes requests have.
    pub naming: Naming,
    /// Rules to try; without them, the run finds out who sends how much.
    pub policy: Option<Policy>,
    /// Other rules to compare with these.
    pub compared: Option<(Policy, Naming)>,
    /// Threads that read lines.
    pub workers: usize,
    /// Buckets in use at the same time.
    pub max_keys: usize,
}

/// A request on its way from a worker to the engine.
pub(crate) struct Event {
    pub(crate) facts: Facts,
    pub(crate) route: Option<Box<str>>,
    pub(crate) client: Option<Key>,
    pub(crate) charges: Vec<Charge>,
    pub(crate) compared: Vec<Charge>,
}

/// What a run found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) read: ReadReport,
    /// All requests with an address, by address.
    pub(crate) clients: Traffic,
    /// By other kinds of keys, where there are no rules.
    pub(crate) kinds: Vec<Traffic>,
    /// Requests that sign in, by address.
    pub(crate) sign_ins: Traffic,
    pub(crate) routes: Routes,
    /// By day of the week from Monday, and hour, in UTC.
    pub(crate) week: [[Counts; 24]; 7],
    pub(crate) trial: Option<Trial>,
    pub(crate) compared: Option<Compared>,
}

/// Other rules and the difference that they make.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) trial: Trial,
    /// Requests that pass now and would not have, or the other way round, by address.
    pub(crate) gaining: HotKeys<()>,
    pub(crate) losing: HotKeys<()>,
}

/// Names that identify a client in other people's logs.
const IDENTIFYING: [&str; 8] = ["api-key", "api_key", "apikey", "user", "tenant", "account", "client-id", "customer"];
/// Kinds of keys beside addresses.
const MOST_KINDS: usize = 4;

/// A rule that only says what its keys are.
fn kind(name: &str, key: &str) -> Option<Arc<Rule>> {
    let spec: RuleSpec = Rule::new(name).key(key).limit("1/s");
    spec.build().ok().map(Arc::new)
}

pub(crate) fn kinds_of(names: &[String]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for name in names {
        let is_identifying = IDENTIFYING.iter().any(|word| name.contains(word)) && name != "header.user-agent";
        if is_identifying && !kinds.contains(name) && kinds.len() < MOST_KINDS {
            kinds.push(name.clone());
        }
    }
    kinds
}

/// Reads logs and counts. `None` when a built-in rule is invalid, which is a bug.
pub(crate) fn run(logs: Vec<Log>, options: Options, progress: &Progress) -> Option<Found> {
    let Options { naming, policy, compared, workers, max_keys } = options;
    let names: Vec<String> = logs.iter().flat_map(|log| log.names().iter().cloned()).collect();
    let kinds: Vec<Arc<Rule>> = match policy {
        Some(_) => Vec::new(),
        None => kinds_of(&names).iter().filter_map(|name| kind(name, &format!("{{{name}}}"))).collect(),
    };
    let policy = policy.map(Arc::new);
    let (other, other_naming) = match compared {
        Some((policy, naming)) => (Some(Arc::new(policy)), naming),
        None => (None, Naming::default()),
    };
    let mut found = Found::new(policy.clone(), other.clone(), max_keys, &kinds)?;
    let worker = || {
        let mut witness = Witness::default();
        let (naming, policy, kinds) = (&naming, &policy, &kinds);
        let (other, other_naming) = (&other, &other_naming);
        move |entry: &Entry<'_>| {
            let request = LogRequest::new(entry, naming);
            let charges = match policy {
                Some(policy) => charges_of(policy, &request)?,
                None => kinds
                    .iter()
                    .filter_map(|rule| Some(Charge::new(rule.clone(), rule.key_of(&request).ok()?, 1)))
                    .collect(),
            };
            let compared = match other {
                Some(policy) => charges_of(policy, &LogRequest::new(entry, other_naming))?,
                None => Vec::new(),
            };
            let (facts, route) = witness.see(entry);
            let client = request.attribute("ip").map(|ip| Key { variant: 0, value: ip.into_owned() });
            Ok(Event { facts, route, client, charges, compared })
        }
    };
    let read = reader::read(logs, workers, progress, worker, |at_us, event| {
        found.add(at_us, event);
    });
    found.read = read;
    Some(found)
}

/// Reads logs with this many workers: `look` turns each request into what `sink` gets in order of time.
pub fn each_request<T: Send>(
    logs: Vec<Log>,
    naming: &Naming,
    workers: usize,
    progress: &Progress,
    look: impl Fn(&LogRequest<'_, '_>) -> Result<T, String> + Sync,
    sink: impl FnMut(u64, T),
) -> ReadReport {
    let worker = || |entry: &Entry<'_>| look(&LogRequest::new(entry, naming));
    reader::read(logs, workers, progress, worker, sink)
}

fn charges_of(policy: &Policy, request: &LogRequest<'_, '_>) -> Result<Vec<Charge>, String> {
    let mut charges = policy.charges(request).map_err(|error| error.to_string())?;
    charges.retain(|charge| Trial::is_tried(&charge.rule));
    Ok(charges)
}

impl Found {
    /// Nothing yet. `None` when a built-in rule is invalid, which is a bug.
    pub(crate) fn new(
        policy: Option<Arc<Policy>>,
        other: Option<Arc<Policy>>,
        max_keys: usize,
        kinds: &[Arc<Rule>],
    ) -> Option<Found> {
        Some(Found {
            read: ReadReport::default(),
            clients: Traffic::new(kind("address", "{ip}")?),
            kinds: kinds.iter().map(|rule| Traffic::new(rule.clone())).collect(),
            sign_ins: Traffic::new(kind("sign-in", "{ip}")?),
            routes: Routes::new(),
            week: [[Counts::default(); 24]; 7],
            trial: policy.map(|policy| Trial::new(policy, max_keys)),
            compared: other.map(|policy| Compared {
                trial: Trial::new(policy, max_keys),
                gaining: HotKeys::new(HOT_ROOM),
                losing: HotKeys::new(HOT_ROOM),
            }),
        })
    }

    pub(crate) fn add(&mut self, at_us: u64, event: Event) -> Fate {
        let Event { facts, route, client, charges, compared } = event;
        let fate = match &mut self.trial {
            Some(trial) => trial.decide(at_us, charges, &facts),
            None => {
                for charge in &charges {
                    if let Some(kind) = self.kinds.iter_mut().find(|kind| Arc::ptr_eq(&kind.rule, &charge.rule)) {
                        kind.add(at_us, &charge.key, 1, &facts, Said::Allowed);
                    }
                }
                Fate::Passed
            }
        };
        if let Some(other) = &mut self.compared {
            let then = other.trial.decide(at_us, compared, &facts);
            if let Some(client) = &client {
                let hash = hash_of_key(client);
                match (fate.is_denied(), then.is_denied()) {
                    (true, false) => *other.gaining.count(hash, 0, &client.value) = (),
                    (false, true) => *other.losing.count(hash, 0, &client.value) = (),
                    _ => {}
                }
            }
        }
        let is_denied = fate.is_denied();
        let said = if is_denied { Said::Denied { wait: None } } else { Said::Allowed };
        if let Some(client) = &client {
            self.clients.add(at_us, client, 1, &facts, said);
            if facts.asks == Asks::SignIn {
                self.sign_ins.add(at_us, client, 1, &facts, said);
            }
        }
        let hour = at_us / 3_600_000_000;
        // The epoch was a Thursday.
        let counts = &mut self.week[((hour / 24 + 3) % 7) as usize][(hour % 24) as usize];
        counts.requests += 1;
        counts.denied += u64::from(is_denied);
        let counts = routes::Counts {
            requests: 1,
            refused: u64::from((400..500).contains(&facts.status)),
            failed: u64::from(facts.status >= 500),
            sign_ins: u64::from(facts.asks == Asks::SignIn),
            no_rule: u64::from(fate == Fate::NoRule),
        };
        self.routes.count(facts.route, route.as_deref(), counts);
        fate
    }
}
