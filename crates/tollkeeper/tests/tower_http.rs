//! The layer in a real axum server, asked over real sockets.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::tower::TollkeeperLayer;
use tollkeeper::{Algorithm, HeaderStyle, Limiter, MemoryStore, Policy, RuleSpec};

fn rule(name: &str, key: &str, limit: &str) -> RuleSpec {
    RuleSpec { name: name.into(), key: key.into(), limit: limit.into(), ..RuleSpec::default() }
}

fn limiter(rules: impl IntoIterator<Item = RuleSpec>) -> Arc<Limiter> {
    Arc::new(Limiter::new(Policy::new(rules).expect("valid rules"), MemoryStore::new()))
}

fn layer(rules: impl IntoIterator<Item = RuleSpec>) -> TollkeeperLayer {
    TollkeeperLayer::new(limiter(rules)).peer(|found| found.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()))
}

/// Serves `/`, `/healthz` and whatever else a test adds, until the test ends.
async fn serve(app: Router, layer: TollkeeperLayer) -> SocketAddr {
    let app = app.route("/", get(|| async { "hello" })).route("/healthz", get(|| async { "fine" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("address");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

struct Reply {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Reply {
    fn parse(text: &str) -> Reply {
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("status").parse().expect("number");
        let field = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string()));
        Reply { status, headers: lines.filter_map(field).collect(), body: body.to_string() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }

    /// The parameters of each policy of a draft-11 field, by policy.
    fn policies(&self, field: &str) -> HashMap<String, HashMap<String, u64>> {
        let items = self.header(field).split(',');
        let parameters = |text: &str| {
            let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
            pairs.map(|(name, value)| (name.to_string(), value.parse().expect("number"))).collect()
        };
        items
            .map(|item| {
                let (name, rest) = item.strip_prefix('"').and_then(|item| item.split_once('"')).expect("a string");
                (name.to_string(), parameters(rest))
            })
            .collect()
    }
}

async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream
}

async fn ask_with(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut stream = open(address, path, headers).await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("answered");
    Reply::parse(&text)
}

async fn ask(address: SocketAddr, path: &str) -> Reply {
    ask_with(address, path, &[]).await
}

#[tokio::test]
async fn allowed_and_denied_responses_show_their_limits() {
    let rules = [rule("per-client", "{ip}", "2/min"), rule("all", "global", "100/s")];
    let address = serve(Router::new(), layer(rules)).await;
    for left in [1, 0] {
        let reply = ask(address, "/").await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "hello"));
        assert_eq!(
            reply.policies("ratelimit-policy")["per-client"],
            HashMap::from([("q".into(), 2), ("w".into(), 60)])
        );
        assert_eq!(reply.policies("ratelimit")["per-client"]["r"], left);
        assert_eq!(reply.policies("ratelimit-policy")["all"]["q"], 100);
        assert!(!reply.headers.contains_key("retry-after"));
    }
    let denied = ask(address, "/").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), "application/problem+json");
    assert_eq!(denied.header("cache-control"), "no-store");
    assert_eq!(denied.policies("ratelimit")["per-client"]["r"], 0);
    let problem: serde_json::Value = serde_json::from_str(&denied.body).expect("json");
    assert_eq!(problem["violated-policies"], serde_json::json!(["per-client"]));
    let retry_after: u64 = denied.header("retry-after").parse().expect("seconds");
    let retry_after_ms = problem["retry_after_ms"].as_u64().expect("milliseconds");
    assert_eq!(retry_after, retry_after_ms.div_ceil(1_000));
    assert!((1..=30).contains(&retry_after), "{retry_after}");
}

#[tokio::test]
async fn the_answer_is_written_in_the_style_that_was_asked_for() {
    let style = AnswerStyle {
        headers: HeaderStyle::Draft06,
        deny_status: http::StatusCode::SERVICE_UNAVAILABLE,
        ..AnswerStyle::default()
    };
    let address = serve(Router::new(), layer([rule("all", "global", "1/h")]).answer(style)).await;
    assert_eq!(ask(address, "/").await.header("ratelimit-remaining"), "0");
    let denied = ask(address, "/").await;
    assert_eq!((denied.status, denied.header("ratelimit-limit")), (503, "1"));
}

#[tokio::test]
async fn skipped_requests_are_free_and_not_reported() {
    let layer = layer([rule("all", "global", "1/h")]).skip(|request| request.uri.path() == "/healthz");
    let address = serve(Router::new(), layer).await;
    for _ in 0..3 {
        let reply = ask(address, "/healthz").await;
        assert_eq!(reply.status, 200);
        assert!(!reply.headers.contains_key("ratelimit"));
    }
    assert_eq!(ask(address, "/").await.status, 200);
    assert_eq!(ask(address, "/").await.status, 429);
    assert_eq!(ask(address, "/healthz").await.status, 200);
}

#[tokio::test]
async fn a_client_alone_does_not_get_a_new_bucket_by_claiming_addresses() {
    let address = serve(Router::new(), layer([rule("per-client", "{ip}", "1/h")])).await;
    assert_eq!(ask(address, "/").await.status, 200);
    for fake in ["6.6.6.1", "6.6.6.2", "::ffff:6.6.6.3"] {
        let forwarded = format!("for=\"{fake}\"");
        let claims = [("x-forwarded-for", fake), ("forwarded", &forwarded), ("x-real-ip", fake), ("client-ip", fake)];
        assert_eq!(ask_with(address, "/", &claims).await.status, 429);
        assert_eq!(ask_with(address, "/", &claims[..1]).await.status, 429);
        assert_eq!(ask_with(address, "/", &claims[1..2]).await.status, 429);
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_client_has_its_bucket_and_no_more() {
    let identity = Identity::new().trust(["127.0.0.0/8".parse().expect("network")]);
    let address = serve(Router::new(), layer([rule("per-client", "{ip}", "1/h")]).identity(identity)).await;
    let from = |list: &str| {
        let list = list.to_string();
        async move { ask_with(address, "/", &[("x-forwarded-for", &list)]).await.status }
    };
    assert_eq!(from("203.0.113.7").await, 200);
    assert_eq!(from("6.6.6.6, 203.0.113.7").await, 429);
    assert_eq!(from("6.6.6.6, 203.0.113.7, 127.0.0.9").await, 429);
    assert_eq!(from("::ffff:203.0.113.7").await, 429);
    assert_eq!(from("203.0.113.8").await, 200);
    assert_eq!(from("2001:db8:1:2::1").await, 200);
    assert_eq!(from("2001:db8:1:2:ffff::2").await, 429, "one /64 is one client");
    // The proxy passes on a Forwarded header that the client made up: the client only gets the bucket of the proxy
    // itself.
    let mut admitted = 0;
    for fake in 1..=5 {
        let forwarded = format!("for=6.6.6.{fake}");
        let lines = [("x-forwarded-for", "203.0.113.7"), ("forwarded", forwarded.as_str())];
        admitted += u32::from(ask_with(address, "/", &lines).await.status == 200);
    }
    assert_eq!(admitted, 1);
}

#[tokio::test]
async fn a_denied_request_waits_when_that_was_asked_for() {
    let layer = layer([rule("all", "global", "1/50ms")]).wait_up_to(Duration::from_secs(60));
    let address = serve(Router::new(), layer).await;
    let asks: Vec<_> = (0..5).map(|_| tokio::spawn(ask(address, "/"))).collect();
    for asked in asks {
        assert_eq!(asked.await.expect("no panic").status, 200);
    }
}

#[tokio::test]
async fn a_leaky_bucket_lets_requests_in_one_after_another() {
    let paced =
        RuleSpec { algorithm: Algorithm::LeakyBucket, burst: Some("3".into()), ..rule("paced", "global", "1/100ms") };
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let app = Router::new().route("/paced", get(async move || _ = seen.send(tokio::time::Instant::now())));
    let address = serve(app, layer([paced])).await;
    let before = tokio::time::Instant::now();
    let asks: Vec<_> = (0..3).map(|_| tokio::spawn(ask(address, "/paced"))).collect();
    for asked in asks {
        assert_eq!(asked.await.expect("no panic").status, 200);
    }
    // Lower bounds hold on any machine: no request passes before its turn. The tenth is for clocks that differ.
    for turn in 0..3 {
        let arrived = arrivals.recv().await.expect("an arrival");
        assert!(arrived - before >= Duration::from_millis(90) * turn, "turn {turn} after {:?}", arrived - before);
    }
}

/// A body that yields what it is sent, and ends when the sender is dropped.
struct Gated(mpsc::Receiver<Bytes>);

impl http_body::Body for Gated {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A server with one download at a time, and the senders of the downloads.
async fn downloads() -> (SocketAddr, Arc<Limiter>, mpsc::UnboundedReceiver<mpsc::Sender<Bytes>>) {
    let limiter = limiter([RuleSpec { algorithm: Algorithm::Concurrency, ..rule("downloads", "global", "1") }]);
    let (started, starts) = mpsc::unbounded_channel();
    let started = Arc::new(Mutex::new(started));
    let download = async move || {
        let (sender, receiver) = mpsc::channel(1);
        started.lock().expect("not poisoned").send(sender).expect("the test listens");
        Body::new(Gated(receiver))
    };
    let address = serve(Router::new().route("/download", get(download)), TollkeeperLayer::new(limiter.clone())).await;
    (address, limiter, starts)
}

#[tokio::test]
async fn a_download_keeps_its_slot_until_its_last_byte() {
    let (address, _, mut starts) = downloads().await;
    let mut stream = open(address, "/download", &[]).await;
    let sender = starts.recv().await.expect("a download");
    sender.send(Bytes::from_static(b"first")).await.expect("listening");
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.expect("a status line");
    assert_eq!(&begun, b"HTTP/1.1 200");
    assert_eq!(ask(address, "/").await.status, 429);
    drop(sender);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("the end");
    assert_eq!(ask(address, "/").await.status, 200);
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_slot() {
    let (address, limiter, mut starts) = downloads().await;
    let stream = open(address, "/download", &[]).await;
    let sender = starts.recv().await.expect("a download");
    assert_eq!(ask(address, "/").await.status, 429);
    drop(stream);
    let freed = async {
        while limiter.inspect("downloads", "global").await.expect("rule").expect("store")[0].decision.remaining == 0 {
            // The server notices when it writes.
            _ = sender.send(Bytes::from_static(b"more")).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(30), freed).await.expect("freed long before the hold expires");
    assert_eq!(ask(address, "/").await.status, 200);
}

#[tokio::test]
async fn a_cost_that_is_no_number_is_a_bad_request() {
    let costly = RuleSpec { cost: "header.x-cost".into(), ..rule("costly", "global", "10/h") };
    let address = serve(Router::new(), layer([costly])).await;
    let reply = ask_with(address, "/", &[("x-cost", "lots")]).await;
    assert_eq!((reply.status, reply.header("content-type")), (400, "application/problem+json"));
    assert!(reply.body.contains("header.x-cost") && !reply.body.contains("lots"), "{}", reply.body);
    assert_eq!(ask_with(address, "/", &[("x-cost", "10")]).await.status, 200);
    let never = ask_with(address, "/", &[("x-cost", "11")]).await;
    assert_eq!(never.status, 429);
    assert!(!never.headers.contains_key("retry-after"));
}
