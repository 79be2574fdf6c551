//! A real Envoy between a client and an upstream, asking the real binary: `examples/envoy` with other ports.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use tollkeeper_testkit::http::{Answer, Client};
use tollkeeper_testkit::proxy::{Kind, Proxy, Setup};
use tollkeeper_testkit::{Authority, Pair, Service};

const RULES: &str = include_str!("../../../examples/envoy/tollkeeper.yaml");

struct Envoy(Proxy);

impl Envoy {
    /// Envoy with the service at `grpc`.
    fn start(grpc: &str, deny_on_failure: bool) -> Envoy {
        Envoy::start_with(grpc, deny_on_failure, "")
    }

    /// With these additional lines in the example's part about Tollkeeper.
    fn start_with(grpc: &str, deny_on_failure: bool, of_tollkeeper: &str) -> Envoy {
        let grpc_port = grpc.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let ports = [(8081, grpc_port), (9000, upstream())];
        let failure_mode = format!("failure_mode_deny: {deny_on_failure}");
        let tollkeeper = format!("    - name: tollkeeper\n{of_tollkeeper}");
        let changes =
            [("failure_mode_deny: false", failure_mode.as_str()), ("    - name: tollkeeper\n", tollkeeper.as_str())];
        let setup = Setup { kind: Kind::Envoy, example: "envoy", own_port: 10_000, ports: &ports, changes: &changes };
        Envoy(Proxy::start(&setup, |_| true))
    }

    fn get(&self, user: &str) -> Answer {
        Client::to(&self.0.address()).host("shop").with("x-user", user).get("/")
    }
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

#[track_caller]
fn header(answer: &Answer, name: &str) -> String {
    answer.header(name).unwrap_or_else(|| panic!("no {name} in {answer}"))
}

#[test]
fn two_pass_and_the_third_gets_a_retry_after() {
    let tollkeeper = Service::on(RULES, &[]);
    let envoy = Envoy::start(tollkeeper.grpc.as_ref().unwrap(), true);
    for left in ["1", "0"] {
        let answer = envoy.get("ann");
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(
            header(&answer, "x-ratelimit-limit"),
            "2, 2;w=86400;name=\"per-user\", 100;w=1;name=\"per-address\""
        );
        assert_eq!(header(&answer, "x-ratelimit-remaining"), left);
        let reset: u64 = header(&answer, "x-ratelimit-reset").parse().unwrap();
        assert!(reset <= 86_400, "{reset}");
        assert_eq!(answer.header("retry-after"), None, "{answer}");
    }
    let answer = envoy.get("ann");
    assert_eq!(answer.status, 429, "{answer}");
    assert_eq!(header(&answer, "x-ratelimit-remaining"), "0");
    let wait: u64 = header(&answer, "retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{answer}");
    assert_eq!(envoy.get("bob").status, 200);
    let metrics = tollkeeper.get("/metrics");
    let denied = "tollkeeper_decisions_total{rule=\"per-user\",outcome=\"denied\",source=\"store\"} 1";
    assert!(metrics.contains(denied), "{metrics}");
}

#[test]
fn without_tollkeeper_envoys_failure_mode_decides() {
    for (deny, expected) in [(true, 500), (false, 200)] {
        let tollkeeper = Service::on(RULES, &[]);
        let envoy = Envoy::start(tollkeeper.grpc.as_ref().unwrap(), deny);
        assert_eq!(envoy.get("ann").status, 200);
        drop(tollkeeper);
        let answer = envoy.get("ann");
        assert_eq!(answer.status, expected, "{answer}");
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
    let (authority, unknown) = (Authority::new(), Authority::new());
    let server = authority.server();
    let tollkeeper = Service::on(RULES, &server.flags_for(&authority));
    let envoy = |client: &Pair| {
        let files = [("CLIENT.pem", &client.cert), ("CLIENT.key", &client.key), ("CA.pem", &authority.pem)];
        let lines = files.into_iter().fold(TLS.to_string(), |lines, (name, file)| lines.replace(name, file));
        Envoy::start_with(tollkeeper.grpc.as_ref().unwrap(), true, &lines)
    };
    let ours = envoy(&authority.client("envoy"));
    assert_eq!([ours.get("ann").status, ours.get("ann").status, ours.get("ann").status], [200, 200, 429]);
    assert_eq!(envoy(&unknown.client("envoy")).get("bob").status, 500, "no answer, and Envoy fails closed");
}

/// A rule's own response to denied requests was lost: Envoy answered 429 with an empty body.
#[test]
fn a_rule_denies_in_its_own_words() {
    let words =
        "algorithm: fixed_window\n    deny: { status: 420, content_type: text/html, body: \"<p>${rule}: enough</p>\" }";
    let tollkeeper = Service::on(&RULES.replace("algorithm: fixed_window", words), &[]);
    let envoy = Envoy::start(tollkeeper.grpc.as_ref().unwrap(), true);
    for _ in 0..2 {
        assert_eq!(envoy.get("ann").status, 200);
    }
    let answer = envoy.get("ann");
    assert_eq!(answer.status, 429, "the status is Envoy's: {answer}");
    assert!(answer.ends_with("\r\n\r\n<p>per-user: enough</p>"), "{answer}");
    assert_eq!(answer.to_lowercase().matches("content-type").count(), 1, "{answer}");
    assert_eq!(header(&answer, "content-type"), "text/html");
    assert!(header(&answer, "retry-after").parse::<u64>().is_ok(), "{answer}");
}
