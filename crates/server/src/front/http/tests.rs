//! The front over real sockets: a service on a free port with a manual clock, and a client that writes bytes.

mod access;
mod actions;
mod authorize;
mod check;
mod connection;
mod crowd;
mod errors;
mod exceptions;
mod insight;
mod keys;
mod origin;
mod reserve;
mod rules;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::{Limiter, ManualClock, MemoryStore, Policy, RuleSpec, Span, Timestamp};

use super::*;
use crate::observer::Observer;
use crate::tokens::{Measured, Token, Tokens};

/// The token of a gate that has no other.
const TOKEN: &str = "open-sesame-open-sesame";

fn token(text: &str) -> Option<Token> {
    Some(Token::new(text.into()))
}

/// A running front.
struct Gate {
    address: SocketAddr,
    clock: ManualClock,
    service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<anyhow::Result<()>>,
}

/// How a gate is built, with defaults.
struct Plan {
    rules: Vec<Value>,
    tokens: Tokens,
    identity: Identity,
    limits: Limits,
}

impl Plan {
    fn new(rules: impl IntoIterator<Item = Value>) -> Plan {
        let rules = rules.into_iter().collect();
        let tokens =
            Tokens { admin: token(TOKEN), measured: Measured::ThisMachine, is_made: true, ..Tokens::default() };
        Plan { rules, tokens, identity: Identity::new(), limits: Limits::default() }
    }

    fn tokens(self, tokens: Tokens) -> Plan {
        Plan { tokens, ..self }
    }

    fn trust(self, network: &str) -> Plan {
        Plan { identity: Identity::new().trust([network.parse().expect("a network")]), ..self }
    }

    fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Plan {
        change(&mut self.limits);
        self
    }

    async fn open(self) -> Gate {
        let specs = self.rules.into_iter().map(|rule| serde_json::from_value::<RuleSpec>(rule).expect("a rule"));
        let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
        let store = MemoryStore::with(1_000, clock.clone());
        let service = Arc::new(Service {
            limiter: Arc::new(Limiter::new(Policy::new(specs).expect("valid rules"), store)),
            metrics: crate::front::metrics().into(),
            alerts: Default::default(),
            observer: Observer::new(Default::default(), clock.now()),
            identity: self.identity,
            answer: AnswerStyle::default(),
            seal: Arc::new(crate::seal::Seal::random().expect("random numbers")),
            tokens: self.tokens,
            guesses: Default::default(),
            rules: None,
            tracer: Default::default(),
            draining: Default::default(),
            drains: Default::default(),
            key_places: Default::default(),
        });
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = socket.listen(64).expect("listening");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let running = tokio::spawn(run_within(self.limits, listener, service.clone(), shutdown));
        Gate { address, clock, service, stop: Some(stop), running }
    }
}

impl Gate {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    /// Sends one request, such as `GET /v1/rules` with header lines and a body, on its own connection, with the
    /// token.
    async fn ask(&self, request: &str, headers: &str, body: impl AsRef<[u8]>) -> Reply {
        let is_admin = ["actions", "exceptions", "insight", "keys", "rules", "violations"]
            .iter()
            .any(|part| request.contains(&format!(" /v1/{part}")));
        let token = if is_admin { format!("authorization: Bearer {TOKEN}\r\n") } else { String::new() };
        self.send(request, &format!("{token}{headers}"), body).await
    }

    /// The same with these header lines only.
    async fn send(&self, request: &str, headers: &str, body: impl AsRef<[u8]>) -> Reply {
        let body = body.as_ref();
        let mut stream = self.connect().await;
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let head = format!("{request} HTTP/1.1\r\nhost: gate.localhost\r\nconnection: close\r\n{headers}{length}\r\n");
        // One write, as clients do; a large body may be refused while it is sent.
        let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("an answer");
        Reply::parse(&bytes).0
    }

    async fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), "", "").await
    }

    async fn check(&self, body: Value) -> Value {
        let reply = self.ask("POST /v1/check", "", body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    fn begin_to_stop(&mut self) {
        self.stop.take().expect("not stopped before").send(()).expect("still running");
    }
}

/// A response.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Reply {
    /// The first response in these bytes, and what follows it.
    fn parse(bytes: &[u8]) -> (Reply, &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is text");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let rest = &bytes[end + 4..];
        let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a length"));
        let (body, rest) = rest.split_at(rest.len().min(length));
        let body = String::from_utf8(body.to_vec()).expect("bodies are text");
        (Reply { status: status.parse().expect("a number"), headers, body }, rest)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The detail of the problem document, checked to be one.
    #[track_caller]
    fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["type"].is_string(), "{problem}");
        problem["detail"].as_str().expect("a detail").to_string()
    }
}

/// Two a second in bursts of three, one bucket per user.
fn per_user() -> Value {
    json!({"name": "per-user", "scope": "user", "key": "{user_id}", "limit": "2/s", "burst": 3})
}

/// Two in any hour, one bucket per client address.
fn per_ip() -> Value {
    json!({"name": "per-ip", "key": "{ip}", "limit": "2/h", "algorithm": "sliding_window_log"})
}
