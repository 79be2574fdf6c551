//! Several instances of the service on one store, each over its own link.

use std::sync::{Arc, Mutex, PoisonError};

use tollkeeper_auditor::Limit;
use tollkeeper_testkit::{Folder, Postgres, Service, SteppedClock, file, tollkeeper};

use crate::link::Link;

/// Where an instance listens; it changes when the instance is restarted.
pub(crate) type Address = Arc<Mutex<String>>;

/// A kind of rule whose bound the documentation publishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The column of the table, and the attribute in the rule's key.
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    /// Lines of the rules file.
    settings: &'static str,
}

/// One rule of each kind.
pub(crate) const KINDS: [Kind; 4] = [
    Kind { name: "closed", limit: Limit { per_second: 10, burst: 20 }, settings: "on_store_failure: closed" },
    Kind { name: "local", limit: Limit { per_second: 12, burst: 24 }, settings: "on_store_failure: local" },
    Kind { name: "open", limit: Limit { per_second: 10, burst: 20 }, settings: "on_store_failure: open" },
    Kind {
        name: "lease",
        limit: Limit { per_second: 60, burst: 60 },
        settings: "lease: auto\n    on_store_failure: closed",
    },
];

/// The `store` of a configuration. The timeout is longer than by default: here stores, instances and clients share a few
/// cores, and what is judged is how faults are met.
fn store_setting(store: &str) -> String {
    format!("store: {{ url: \"{store}\", timeout: 100ms }}\n")
}

/// The `rules` of a configuration.
fn rules() -> String {
    let mut text = String::from("rules:\n");
    for Kind { name, limit: Limit { per_second, burst }, settings } in KINDS {
        text += &format!(
            "  - name: {name}\n    key: \"{{{name}}}\"\n    limit: {per_second}/s\n    burst: {burst}\n    {settings}\n"
        );
    }
    text
}

/// The instances.
pub(crate) struct Fleet {
    instances: Vec<Instance>,
}

struct Instance {
    service: Service,
    address: Address,
    launch: Launch,
}

/// How an instance is started, and started again.
#[derive(Clone)]
struct Launch {
    config: String,
    clock: Option<Arc<SteppedClock>>,
    /// Where the snapshot of rules from a database is.
    _folder: Option<Arc<Folder>>,
}

impl Fleet {
    /// One instance for each store URL.
    pub(crate) fn start(stores: &[String]) -> Fleet {
        let config = |store: &String| file(&(store_setting(store) + &rules()), "yaml");
        Fleet::launch(stores.iter().map(|store| Launch { config: config(store), clock: None, _folder: None }))
    }

    /// One instance for each store URL, all with the same clock.
    pub(crate) fn start_by(clock: &Arc<SteppedClock>, stores: &[String]) -> Fleet {
        let config = |store: &String| file(&(store_setting(store) + &rules()), "yaml");
        let clock = || Some(Arc::clone(clock));
        Fleet::launch(stores.iter().map(|store| Launch { config: config(store), clock: clock(), _folder: None }))
    }

    /// One instance for each store URL, with rules from a database.
    pub(crate) fn start_on(database: &Postgres, stores: &[String]) -> Fleet {
        apply(database, &rules());
        Fleet::launch(stores.iter().map(|store| {
            let folder = Arc::new(Folder::new());
            let snapshot = folder.join("rules.snapshot");
            let from = format!("rules_from: {}\nrules_snapshot: {}\n", database.url(), snapshot.display());
            Launch { config: file(&(store_setting(store) + &from), "yaml"), clock: None, _folder: Some(folder) }
        }))
    }

    fn launch(launches: impl Iterator<Item = Launch>) -> Fleet {
        let start = |launch: Launch| {
            let service = serve(&launch);
            Instance { address: Arc::new(Mutex::new(service.http.clone())), service, launch }
        };
        Fleet { instances: launches.map(start).collect() }
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.instances.iter().map(|instance| Arc::clone(&instance.address)).collect()
    }

    /// Kills an instance, like a crash, and starts it again.
    pub(crate) fn crash(&mut self, number: usize) {
        let instance = &mut self.instances[number];
        instance.service.kill();
        instance.service = serve(&instance.launch);
        *instance.address.lock().unwrap_or_else(PoisonError::into_inner) = instance.service.http.clone();
    }

    /// Pauses an instance (SIGSTOP): it neither answers nor notices that time passes.
    pub(crate) fn pause(&self, number: usize) {
        self.instances[number].service.signal("-STOP");
    }

    /// Resumes after a pause.
    pub(crate) fn resume(&self, number: usize) {
        self.instances[number].service.signal("-CONT");
    }

    /// Makes all instances reload their rules.
    pub(crate) fn reload(&self) {
        self.instances.iter().for_each(|instance| instance.service.signal("-HUP"));
    }

    pub(crate) fn logs(&self) -> Vec<String> {
        self.instances.iter().map(|instance| instance.service.log()).collect()
    }
}

fn serve(launch: &Launch) -> Service {
    let free = "127.0.0.1:0";
    let args = ["serve", "--http", free, "--grpc", free, "--resp", free, "--config", &launch.config];
    let mut command = tollkeeper(&args);
    if let Some(clock) = &launch.clock {
        clock.apply(&mut command);
    }
    Service::spawn(command)
}

/// Puts rules into a database, as one version; false if that fails, as it does while the database is down.
pub(crate) fn apply(database: &Postgres, rules: &str) -> bool {
    let mut command = tollkeeper(&["rules", "apply", &file(rules, "yaml")]);
    command.env("TOLLKEEPER_RULES_FROM", database.url());
    command.output().is_ok_and(|output| output.status.success())
}

/// The rules in another version that means the same.
pub(crate) fn described(version: usize) -> String {
    rules().replace("    key: ", &format!("    description: version {version}\n    key: "))
}

/// A link to one server for each of three instances.
pub(crate) fn links(port: u16, seed: u64) -> Vec<Link> {
    (0..3).map(|number| Link::to(port, seed + number).expect("a free port")).collect()
}

/// Their URLs.
pub(crate) fn urls(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| format!("redis://127.0.0.1:{}", link.port())).collect()
}
