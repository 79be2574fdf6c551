//! A real Envoy between a client and an upstream, asking the real binary: `examples/envoy` with other ports.
//!
//! Envoy's binary comes with `./run setup`, or is named by `TOLLKEEPER_ENVOY`.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)] // Of the tests of TLS.
#[path = "tls/authority.rs"]
mod authority;
mod running;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use authority::Authority;
use running::{Running, file};

const ENVOY: &str = include_str!("../../../examples/envoy/envoy.yaml");
const RULES: &str = include_str!("../../../examples/envoy/tollkeeper.yaml");

struct Envoy {
    child: Child,
    port: u16,
    log: String,
}

impl Envoy {
    /// Asks the service at `grpc`.
    fn start(grpc: &str, deny_on_failure: bool) -> Envoy {
        Envoy::start_with(grpc, deny_on_failure, "")
    }

    /// With these lines more in what the example says of Tollkeeper.
    fn start_with(grpc: &str, deny_on_failure: bool, of_tollkeeper: &str) -> Envoy {
        // Another process may take a port between finding and using it.
        let mut said = String::new();
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let grpc_port = grpc.rsplit(':').next().unwrap();
            let config = [
                ("port_value: 10000", format!("port_value: {port}")),
                ("port_value: 8081", format!("port_value: {grpc_port}")),
                ("port_value: 9000", format!("port_value: {}", upstream())),
                ("failure_mode_deny: false", format!("failure_mode_deny: {deny_on_failure}")),
                ("    - name: tollkeeper\n", format!("    - name: tollkeeper\n{of_tollkeeper}")),
            ]
            .iter()
            .fold(ENVOY.to_string(), |config, (from, to)| {
                assert!(config.contains(from), "the example has no {from}");
                config.replace(from, to)
            });
            let log = file("", "log");
            let mut envoy = Envoy { child: spawn(&file(&config, "yaml"), &log), port, log };
            let deadline = Instant::now() + Duration::from_secs(20);
            while Instant::now() < deadline && envoy.child.try_wait().is_ok_and(|ended| ended.is_none()) {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return envoy;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            said = std::fs::read_to_string(&envoy.log).unwrap_or_default();
        }
        panic!("Envoy does not start; its log says:\n{said}");
    }

    /// The status, and the head of the answer in lower case.
    fn get(&self, user: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nhost: shop\r\nx-user: {user}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer.to_lowercase())
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(config: &str, log: &str) -> Child {
    let binary = binary();
    let log = std::fs::File::create(log).unwrap();
    Command::new(&binary)
        .args(["-c", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}; run ./run setup to install Envoy", binary.display()))
}

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TOLLKEEPER_ENVOY") {
        return path.into();
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/lib");
    let pythons = std::fs::read_dir(&tools).into_iter().flatten().flatten();
    let mut found = pythons.map(|python| python.path().join("site-packages/envoy/_bin/envoy"));
    found
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no Envoy in {}; run ./run setup, or set TOLLKEEPER_ENVOY", tools.display()))
}

/// A service that answers everything with 200; its port.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

fn answer(mut stream: TcpStream) {
    let mut head = [0; 4096];
    while stream.read(&mut head).is_ok_and(|length| length > 0) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi\n").is_err() {
            return;
        }
    }
}

fn header<'a>(answer: &'a str, name: &str) -> &'a str {
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {answer}")).trim()
}

#[test]
fn two_pass_and_the_third_is_told_when_to_come_back() {
    let tollkeeper = Running::on(RULES, &[]);
    let envoy = Envoy::start(tollkeeper.grpc.as_ref().unwrap(), true);
    for left in ["1", "0"] {
        let (status, answer) = envoy.get("ann");
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            header(&answer, "x-ratelimit-limit"),
            "2, 2;w=86400;name=\"per-user\", 100;w=1;name=\"per-address\""
        );
        assert_eq!(header(&answer, "x-ratelimit-remaining"), left);
        let reset: u64 = header(&answer, "x-ratelimit-reset").parse().unwrap();
        assert!(reset <= 86_400, "{reset}");
        assert!(!answer.contains("retry-after"), "{answer}");
    }
    let (status, answer) = envoy.get("ann");
    assert_eq!(status, 429, "{answer}");
    assert_eq!(header(&answer, "x-ratelimit-remaining"), "0");
    let wait: u64 = header(&answer, "retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{answer}");
    assert_eq!(envoy.get("bob").0, 200);
    let metrics = tollkeeper.get("/metrics");
    let denied = "tollkeeper_decisions_total{rule=\"per-user\",outcome=\"denied\",source=\"store\"} 1";
    assert!(metrics.contains(denied), "{metrics}");
}

#[test]
fn without_tollkeeper_envoys_failure_mode_decides() {
    for (deny, expected) in [(true, 500), (false, 200)] {
        let tollkeeper = Running::on(RULES, &[]);
        let envoy = Envoy::start(tollkeeper.grpc.as_ref().unwrap(), deny);
        assert_eq!(envoy.get("ann").0, 200);
        drop(tollkeeper);
        let (status, answer) = envoy.get("ann");
        assert_eq!(status, expected, "{answer}");
    }
}

/// The lines of docs/guide/envoy.md, with these files.
const TLS: &str = r#"      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          common_tls_context:
            tls_certificates:
              - { certificate_chain: { filename: CLIENT.pem }, private_key: { filename: CLIENT.key } }
            validation_context:
              trusted_ca: { filename: CA.pem }
              match_typed_subject_alt_names: [{ san_type: DNS, matcher: { exact: localhost } }]
"#;

#[test]
fn envoy_shows_a_certificate_and_asks_for_tollkeepers() {
    assert!(include_str!("../../../docs/guide/envoy.md").contains(TLS), "the guide says what is tested");
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server();
    let tollkeeper = Running::on(RULES, &server.flags_for(&authority));
    let envoy = |client: &authority::Pair| {
        let files = [("CLIENT.pem", &client.cert), ("CLIENT.key", &client.key), ("CA.pem", &authority.pem)];
        let lines = files.into_iter().fold(TLS.to_string(), |lines, (name, file)| lines.replace(name, file));
        Envoy::start_with(tollkeeper.grpc.as_ref().unwrap(), true, &lines)
    };
    let ours = envoy(&authority.client("envoy"));
    assert_eq!([ours.get("ann").0, ours.get("ann").0, ours.get("ann").0], [200, 200, 429]);
    assert_eq!(envoy(&stranger.client("envoy")).get("bob").0, 500, "nobody answers, and failing is to deny");
}

/// What a rule says to those it denies stayed behind: Envoy answered 429 with nothing in it.
#[test]
fn a_rule_denies_in_its_own_words() {
    let words =
        "algorithm: fixed_window\n    deny: { status: 420, content_type: text/html, body: \"<p>${rule}: enough</p>\" }";
    let tollkeeper = Running::on(&RULES.replace("algorithm: fixed_window", words), &[]);
    let envoy = Envoy::start(tollkeeper.grpc.as_ref().unwrap(), true);
    for _ in 0..2 {
        assert_eq!(envoy.get("ann").0, 200);
    }
    let (status, answer) = envoy.get("ann");
    assert_eq!(status, 429, "the status is Envoy's: {answer}");
    assert!(answer.ends_with("\r\n\r\n<p>per-user: enough</p>"), "{answer}");
    assert_eq!(answer.matches("content-type").count(), 1, "{answer}");
    assert_eq!(header(&answer, "content-type"), "text/html");
    assert!(header(&answer, "retry-after").parse::<u64>().is_ok(), "{answer}");
}
