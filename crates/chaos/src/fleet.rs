//! Several instances of the service on one store, each over its own link.

use std::sync::{Arc, Mutex, PoisonError};

use tollkeeper_auditor::Limit;
use tollkeeper_testkit::{Service, file};

use crate::client::Address;
use crate::link::Link;

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

/// The rules file, with this store.
pub(crate) fn configuration(store: &str) -> String {
    // Longer than by default: here stores, instances and clients share a few cores, and what is judged is how faults are met.
    let mut text = format!("store: {{ url: \"{store}\", timeout: 100ms }}\nrules:\n");
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
    config: String,
}

impl Fleet {
    /// One instance for each store URL.
    pub(crate) fn start(stores: &[String]) -> Fleet {
        let start = |store: &String| {
            let config = file(&configuration(store), "yaml");
            let service = serve(&config);
            let address = Arc::new(Mutex::new(service.http.clone()));
            Instance { service, address, config }
        };
        Fleet { instances: stores.iter().map(start).collect() }
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.instances.iter().map(|instance| Arc::clone(&instance.address)).collect()
    }

    /// Kills an instance, like a crash, and starts it again.
    pub(crate) fn crash(&mut self, number: usize) {
        let instance = &mut self.instances[number];
        instance.service.kill();
        instance.service = serve(&instance.config);
        *instance.address.lock().unwrap_or_else(PoisonError::into_inner) = instance.service.http.clone();
    }

    /// Makes all instances reload their rules.
    pub(crate) fn reload(&self) {
        self.instances.iter().for_each(|instance| instance.service.signal("-HUP"));
    }

    pub(crate) fn logs(&self) -> Vec<String> {
        self.instances.iter().map(|instance| instance.service.log()).collect()
    }
}

fn serve(config: &str) -> Service {
    Service::start(&[
        "serve",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--resp",
        "127.0.0.1:0",
        "--config",
        config,
    ])
}

/// A link to one server for each of three instances.
pub(crate) fn links(port: u16, seed: u64) -> Vec<Link> {
    (0..3).map(|number| Link::to(port, seed + number).expect("a free port")).collect()
}

/// Their URLs.
pub(crate) fn urls(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| format!("redis://127.0.0.1:{}", link.port())).collect()
}
