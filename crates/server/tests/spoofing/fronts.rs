//! The ways in, each with an application behind it and buckets that can be looked at.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use serde_json::json;
use tollkeeper::http::{AddressSource, Identity};
use tollkeeper::tower::TollkeeperLayer;
use tollkeeper::{Limiter, MemoryStore, Policy, RuleSpec};

use super::application::{Application, Received};
use super::attacks::Attack;
use super::client::{Answer, Client};
use super::proxy::Kind;
use super::site::Site;

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

pub struct Front {
    pub name: String,
    address: SocketAddr,
    /// How a client's request is sent: as it is, or as a proxy would describe it.
    told: Told,
    buckets: Buckets,
    application: Option<Application>,
    /// Kept running.
    _running: Vec<Box<dyn std::any::Any>>,
}

#[derive(Clone, Copy)]
enum Told {
    AsItIs,
    InHeaders,
    InThePath,
}

enum Buckets {
    /// Asked over HTTP.
    At(SocketAddr),
    Of(Arc<Limiter>),
}

impl Front {
    /// A proxy that adds to X-Forwarded-For and passes everything else on.
    pub fn authorize_by_headers() -> Front {
        Front::authorize("/v1/authorize, told by headers", Told::InHeaders, "x-forwarded-for")
    }

    /// A proxy that asks under a prefix.
    pub fn authorize_by_path() -> Front {
        Front::authorize("/v1/authorize, told by the path", Told::InThePath, "x-forwarded-for")
    }

    /// As by headers, with another setting of `client_address`.
    pub fn authorize_where(client_address: &str) -> Front {
        Front::authorize("/v1/authorize", Told::InHeaders, client_address)
    }

    fn authorize(name: &str, told: Told, client_address: &str) -> Front {
        let config = config().replace("client_address: x-forwarded-for", &format!("client_address: {client_address}"));
        let (running, address) = Running::start(&["serve", "--http", "127.0.0.1:0"], &config);
        let buckets = Buckets::At(address);
        Front { name: name.into(), address, told, buckets, application: None, _running: vec![Box::new(running)] }
    }

    pub fn reverse_proxy() -> Front {
        let application = Application::start();
        let upstream = format!("http://127.0.0.1:{}", application.port);
        let args = ["proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &upstream];
        let (mut running, address) = Running::start(&args, &config());
        let buckets = Buckets::At(running.find("admin: http://"));
        let (name, told) = ("tollkeeper proxy".into(), Told::AsItIs);
        Front { name, address, told, buckets, application: Some(application), _running: vec![Box::new(running)] }
    }

    /// One of the examples.
    pub fn behind(kind: Kind) -> Front {
        let mut site = Site::start_on(kind, &[], &config());
        let buckets = Buckets::At(SocketAddr::from(([127, 0, 0, 1], site.tollkeeper.port)));
        let address = SocketAddr::from(([127, 0, 0, 1], site.proxy_port()));
        let application = std::mem::replace(&mut site.application, Application::start());
        let (name, told) = (format!("behind {kind:?}"), Told::AsItIs);
        Front { name, address, told, buckets, application: Some(application), _running: vec![Box::new(site)] }
    }

    /// The layer in an axum server, which is its own application.
    pub fn tower() -> Front {
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
        let address = listener.local_addr().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, app).await });
        let (name, told, buckets) = ("the tower layer".into(), Told::AsItIs, Buckets::Of(limiter));
        Front { name, address, told, buckets, application: None, _running: vec![Box::new(runtime)] }
    }

    /// A connection that is cut off is an answer too.
    pub fn send(&self, number: u8, attack: &Attack) -> Answer {
        self.try_send(number, attack).unwrap_or_else(|_| Answer::read(""))
    }

    fn try_send(&self, number: u8, attack: &Attack) -> std::io::Result<Answer> {
        let get = |client: Client, target: &str| client.try_send("GET", target, "");
        let own = Ipv4Addr::new(127, 0, 0, number);
        let client = |from| Client::new(from, self.address).host(attack.host);
        let headers =
            |client: Client| attack.headers.iter().fold(client, |client, (name, value)| client.with(name, value));
        match self.told {
            Told::AsItIs => get(headers(client(own)), &attack.target),
            Told::InHeaders => {
                let target = attack.target.strip_prefix("http://").and_then(|rest| rest.split('/').next());
                let own_words = ["x-forwarded-uri", "x-forwarded-host", "connection"];
                let hop = |name: &str| own_words.iter().any(|own| name.eq_ignore_ascii_case(own));
                let passed_on = attack.headers.iter().filter(|(name, _)| !hop(name));
                let sent =
                    passed_on.fold(client(Ipv4Addr::LOCALHOST), |client, (name, value)| client.with(name, value));
                let sent = sent.with("x-forwarded-for", &own.to_string()).with("x-forwarded-uri", &attack.target);
                get(sent.with("x-forwarded-host", target.unwrap_or(attack.host)), "/v1/authorize")
            }
            Told::InThePath => {
                let sent = headers(client(Ipv4Addr::LOCALHOST)).with("x-forwarded-for", &own.to_string());
                get(sent, &format!("/v1/authorize{}", attack.target.trim_start_matches("http://shop.example")))
            }
        }
    }

    pub fn remaining(&self, rule: &str, key: &str) -> u64 {
        match &self.buckets {
            Buckets::At(address) => {
                let client = Client::new(Ipv4Addr::LOCALHOST, *address).host("localhost");
                let answer = client.get(&format!("/v1/keys?rule={rule}&key={key}"));
                let bucket: serde_json::Value = serde_json::from_str(&answer.body).expect("a bucket");
                bucket["remaining"].as_u64().unwrap_or_else(|| panic!("{rule} {key}: {answer:?}"))
            }
            Buckets::Of(limiter) => {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let buckets = runtime.block_on(limiter.inspect(rule, key)).expect("the rule").expect("the store");
                buckets[0].decision.remaining.into()
            }
        }
    }

    /// How many requests came to the application.
    pub fn reached(&self) -> usize {
        self.application.as_ref().map_or(0, Application::count)
    }

    pub fn received(&self) -> Option<Received> {
        self.application.as_ref().map(Application::last)
    }
}

/// The binary on the rules of this test, gone when dropped.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(args: &[&str], config: &str) -> (Running, SocketAddr) {
        let file = tempfile(config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLKEEPER_")) {
            command.env_remove(name);
        }
        let mut child = command.args(args).arg("--config").arg(file).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = Running { child, lines };
        let address = running.find("listening on http://");
        (running, address)
    }

    /// The address behind these words.
    fn find(&mut self, words: &str) -> SocketAddr {
        let line = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(words));
        let line = line.unwrap_or_else(|| panic!("the service does not say {words:?}"));
        line.split(words).nth(1).and_then(|rest| rest.trim().parse().ok()).expect("an address")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tempfile(text: &str) -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("spoofing-{}-{}.yaml", std::process::id(), MADE.fetch_add(1, Relaxed));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}
