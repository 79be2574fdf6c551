//! The fronts, each with an application behind it and buckets that can be inspected.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use serde_json::json;
use tollkeeper::http::{AddressSource, Identity};
use tollkeeper::tower::TollkeeperLayer;
use tollkeeper::{Limiter, MemoryStore, Policy, RuleSpec};

use tollkeeper_testkit::http::{Answer, Client};
use tollkeeper_testkit::proxy::Kind;
use tollkeeper_testkit::{Service, file};

use super::attacks::Attack;
use crate::site::{Application, Received, Site};

/// Large enough never to deny, and so slow that `remaining` counts exactly.
const RULES: [(&str, &str); 5] =
    [("everything", "global"), ("by-ip", "{ip}"), ("by-key", "{api_key}"), ("login", "{ip}"), ("by-host", "{host}")];

const SETTINGS: &str = "\
trusted_proxies: [127.0.0.1]
client_address: x-forwarded-for
identify: { api_key: header.x-api-key, key: query.key, session: cookie.sid }
rules:
";

fn config() -> String {
    let rules = RULES.map(|(name, key)| {
        let when = if name == "login" { ", when: { path: /login }" } else { "" };
        format!("  - {{ name: {name}, key: \"{key}\", limit: 1/day, burst: 10000{when} }}\n")
    });
    SETTINGS.to_string() + &rules.concat()
}

pub(super) struct Front {
    pub(super) name: String,
    address: String,
    /// How a client's request is sent: unchanged, or as a proxy would describe it.
    described: Described,
    buckets: Buckets,
    application: Option<Application>,
    /// Kept running.
    _running: Vec<Box<dyn std::any::Any>>,
}

#[derive(Clone, Copy)]
enum Described {
    AsItIs,
    InHeaders,
    InThePath,
}

enum Buckets {
    /// Over HTTP.
    At(String),
    Of(Arc<Limiter>),
}

impl Front {
    /// A proxy that appends to X-Forwarded-For and passes everything else on.
    pub(super) fn authorize_by_headers() -> Front {
        Front::authorize("/v1/authorize, described by headers", Described::InHeaders, "x-forwarded-for")
    }

    /// A proxy that asks with a path prefix.
    pub(super) fn authorize_by_path() -> Front {
        Front::authorize("/v1/authorize, described by the path", Described::InThePath, "x-forwarded-for")
    }

    /// Like `authorize_by_headers`, with another setting of `client_address`.
    pub(super) fn authorize_where(client_address: &str) -> Front {
        Front::authorize("/v1/authorize", Described::InHeaders, client_address)
    }

    fn authorize(name: &str, described: Described, client_address: &str) -> Front {
        let config = config().replace("client_address: x-forwarded-for", &format!("client_address: {client_address}"));
        let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--config", &file(&config, "yaml")]);
        let (address, buckets) = (service.http.clone(), Buckets::At(service.http.clone()));
        Front { name: name.into(), address, described, buckets, application: None, _running: vec![Box::new(service)] }
    }

    pub(super) fn reverse_proxy() -> Front {
        let application = Application::start();
        let upstream = format!("http://127.0.0.1:{}", application.port);
        let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let args = ["proxy", "--upstream", &upstream, "--config", &file(&config(), "yaml")];
        let running = Service::start(&[&args[..], &free].concat());
        let (address, buckets) = (running.http.clone(), Buckets::At(running.admin.clone().expect("an admin address")));
        let (name, described) = ("tollkeeper proxy".into(), Described::AsItIs);
        Front { name, address, described, buckets, application: Some(application), _running: vec![Box::new(running)] }
    }

    /// One of the examples.
    pub(super) fn behind(kind: Kind) -> Front {
        let mut site = Site::start_on(kind, &[], &config());
        let buckets = Buckets::At(format!("127.0.0.1:{}", site.tollkeeper.port));
        let address = site.address();
        let application = std::mem::replace(&mut site.application, Application::start());
        let (name, described) = (format!("behind {kind:?}"), Described::AsItIs);
        Front { name, address, described, buckets, application: Some(application), _running: vec![Box::new(site)] }
    }

    /// The layer in an axum server, which is its own application.
    pub(super) fn tower() -> Front {
        let rule = |(name, key): (&str, &str)| {
            let when = if name == "login" { json!({ "path": "/login" }) } else { json!({}) };
            let rule = json!({ "name": name, "key": key, "limit": "1/day", "burst": 10_000, "when": when });
            serde_json::from_value::<RuleSpec>(rule).expect("a rule")
        };
        let policy = Policy::new(RULES.map(rule)).unwrap();
        let limiter = Arc::new(Limiter::new(policy, MemoryStore::new()));
        let identity = Identity::new()
            .trust(["127.0.0.1/32".parse().unwrap()])
            .address_from(AddressSource::XForwardedFor)
            .identify("api_key", "header.x-api-key".parse().unwrap())
            .identify("key", "query.key".parse().unwrap());
        let layer = TollkeeperLayer::new(limiter.clone())
            .identity(identity)
            .peer(|found| found.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()));
        let app = axum::Router::new().fallback(|| async { "mine" }).layer(layer);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, app).await });
        let (name, described, buckets) = ("the tower layer".into(), Described::AsItIs, Buckets::Of(limiter));
        Front { name, address, described, buckets, application: None, _running: vec![Box::new(runtime)] }
    }

    /// The status of the response; 0 for a connection that is cut off, which is a valid answer too.
    pub(super) fn send(&self, number: u8, attack: &Attack) -> u16 {
        self.try_send(number, attack).map_or(0, |answer| answer.status)
    }

    fn try_send(&self, number: u8, attack: &Attack) -> std::io::Result<Answer> {
        let get = |client: Client, target: &str| client.try_send("GET", target, "");
        let own = Ipv4Addr::new(127, 0, 0, number);
        let client = |from| Client::to(&self.address).from(from).host(attack.host);
        let headers =
            |client: Client| attack.headers.iter().fold(client, |client, (name, value)| client.with(name, value));
        match self.described {
            Described::AsItIs => get(headers(client(own)), &attack.target),
            Described::InHeaders => {
                let target = attack.target.strip_prefix("http://").and_then(|rest| rest.split('/').next());
                let own_words = ["x-forwarded-uri", "x-forwarded-host", "connection"];
                let hop = |name: &str| own_words.iter().any(|own| name.eq_ignore_ascii_case(own));
                let passed_on = attack.headers.iter().filter(|(name, _)| !hop(name));
                let sent =
                    passed_on.fold(client(Ipv4Addr::LOCALHOST), |client, (name, value)| client.with(name, value));
                let sent = sent.with("x-forwarded-for", &own.to_string()).with("x-forwarded-uri", &attack.target);
                get(sent.with("x-forwarded-host", target.unwrap_or(attack.host)), "/v1/authorize")
            }
            Described::InThePath => {
                let sent = headers(client(Ipv4Addr::LOCALHOST)).with("x-forwarded-for", &own.to_string());
                get(sent, &format!("/v1/authorize{}", attack.target.trim_start_matches("http://shop.example")))
            }
        }
    }

    pub(super) fn remaining(&self, rule: &str, key: &str) -> u64 {
        match &self.buckets {
            Buckets::At(address) => {
                let answer = Client::to(address).get(&format!("/v1/keys?rule={rule}&key={key}"));
                answer.json()["remaining"].as_u64().unwrap_or_else(|| panic!("{rule} {key}: {answer:?}"))
            }
            Buckets::Of(limiter) => {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let buckets = runtime.block_on(limiter.inspect(rule, key)).expect("the rule").expect("the store");
                buckets[0].decision.remaining.into()
            }
        }
    }

    /// How many requests reached the application.
    pub(super) fn reached(&self) -> usize {
        self.application.as_ref().map_or(0, Application::count)
    }

    pub(super) fn received(&self) -> Option<Received> {
        self.application.as_ref().map(Application::last)
    }
}
