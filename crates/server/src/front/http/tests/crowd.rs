//! Clients with many requests at once, and clients that do not read their answers.

use std::convert::Infallible;

use axum::body::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, sleep, timeout};

use super::*;

const SOON: Duration = Duration::from_secs(20);

type Sent = BoxBody<Bytes, Infallible>;

/// A connection, and what drives it until it ends.
struct Http2 {
    sender: SendRequest<Sent>,
    running: JoinHandle<()>,
}

impl Http2 {
    /// A client that takes so much of an answer until it reads it, and never lets the connection be idle.
    async fn connect(gate: &Gate, window: u32) -> Http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(window)
            .keep_alive_interval(Duration::from_millis(20))
            .keep_alive_while_idle(true);
        let io = TokioIo::new(gate.connect().await);
        let (sender, connection) = builder.handshake(io).await.expect("a handshake");
        let running = tokio::spawn(async move {
            let _ = connection.await;
        });
        Http2 { sender, running }
    }

    fn send(&self, request: Request<Sent>) -> impl Future<Output = Response<Incoming>> + use<> {
        let mut sender = self.sender.clone();
        async move {
            sender.ready().await.expect("a connection");
            timeout(SOON, sender.send_request(request)).await.expect("in time").expect("an answer")
        }
    }

    async fn status(&self, request: Request<Sent>) -> StatusCode {
        self.send(request).await.status()
    }
}

fn post(path: &str, body: Sent) -> Request<Sent> {
    Request::post(format!("http://gate.localhost{path}")).body(body).expect("a request")
}

fn check(body: impl Into<Bytes>) -> Request<Sent> {
    post("/v1/check", Full::new(body.into()).boxed())
}

/// A check whose body never comes.
fn unfinished() -> Request<Sent> {
    post("/v1/check", BodyExt::boxed(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>())))
}

/// Waits until checks are answered again.
async fn until_served(client: &Http2) {
    let begun = Instant::now();
    while client.status(check("{}")).await != StatusCode::OK {
        assert!(begun.elapsed() < SOON, "there is no room again");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Only connections were counted. On each, HTTP/2 carries hundreds of requests that are held open by bodies that do not
/// come, and one client could make the service keep hundreds of thousands.
#[tokio::test]
async fn a_client_has_as_many_requests_in_flight_as_connections() {
    let gate = Plan::new([]).limits(|limits| limits.connections_per_address = 3).open().await;
    let (one, other) = (Http2::connect(&gate, 65_535).await, Http2::connect(&gate, 65_535).await);
    let mut sender = one.sender.clone();
    let held: Vec<_> = (0..3).map(|_| sender.send_request(unfinished())).collect();
    let refused = one.send(check("{}")).await;
    assert_eq!(
        (refused.status(), refused.headers()["retry-after"].as_bytes()),
        (StatusCode::SERVICE_UNAVAILABLE, &b"1"[..])
    );
    assert_eq!(other.status(check("{}")).await, StatusCode::SERVICE_UNAVAILABLE, "on all connections together");
    assert_eq!(gate.service.metrics.requests().shed, 2);
    assert_eq!(gate.get("/healthz").await.status, 200, "HTTP/1 has one at a time anyway");
    drop(held);
    until_served(&one).await;
}

/// An answer that the client does not take stays in memory, so its request is still in flight.
#[tokio::test]
async fn unread_answers_count() {
    let gate = Plan::new([]).limits(|limits| limits.connections_per_address = 3).open().await;
    let client = Http2::connect(&gate, 1).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let answer = client.send(check("{}")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        unread.push(answer);
    }
    assert_eq!(client.status(check("{}")).await, StatusCode::SERVICE_UNAVAILABLE);
    unread.clear();
    until_served(&client).await;
}

/// A batch whose answer has nearly two megabytes.
fn batch() -> Request<Sent> {
    check(json!({ "checks": vec![json!({ "attributes": { "u": "1" } }); 800] }).to_string())
}

fn ten_rules() -> Plan {
    let rule = |nth| json!({ "name": format!("rule-{nth}"), "key": "{u}", "limit": "1/s" });
    Plan::new((0..10).map(rule))
}

/// Some kilobytes of batch make megabytes of answer. A client that asked for them and read nothing had them all kept: each
/// connection held half a gigabyte.
#[tokio::test]
async fn large_answers_that_nobody_reads_are_bounded() {
    let gate = ten_rules().limits(|limits| limits.connections_per_address = 100).open().await;
    let client = Http2::connect(&gate, 1).await;
    let mut unread = Vec::new();
    let refused = loop {
        let answer = client.send(batch()).await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        unread.push(answer);
        assert!(unread.len() < 20, "all are kept");
    };
    assert!(unread.len() > 4, "{}", unread.len());
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(client.status(check("{}")).await, StatusCode::OK, "small ones are answered");
    unread.clear();
    let begun = Instant::now();
    while client.status(batch()).await != StatusCode::OK {
        assert!(begun.elapsed() < SOON, "there is no room again");
        sleep(Duration::from_millis(10)).await;
    }
    let reader = Http2::connect(&gate, 65_535).await;
    let whole = reader.send(batch()).await.into_body().collect().await.expect("all of it").to_bytes();
    let answer: Value = serde_json::from_slice(&whole).expect("JSON");
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(800), "whole, though in pieces");
}

/// A client that keeps its connection busy never stalls, and would never have to read.
#[tokio::test]
async fn who_does_not_read_a_large_answer_is_cut_off() {
    let gate = ten_rules().limits(|limits| limits.unread = Duration::from_secs(2)).open().await;
    let (patient, other) = (Http2::connect(&gate, 1).await, Http2::connect(&gate, 1).await);
    let _unread = patient.send(batch()).await;
    timeout(SOON, patient.running).await.expect("cut off").expect("no panic");
    assert_eq!(other.status(check("{}")).await, StatusCode::OK, "who owes nothing stays");
}
