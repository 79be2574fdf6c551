//! Requests that wait for their turn.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tollkeeper_testkit::http::Client;
use tollkeeper_testkit::wait_until;

use super::world::{Proxy, Upstream};

const LEAKY: &str = "5/s burst 10 by global algorithm leaky_bucket";

#[tokio::test]
async fn a_leaky_bucket_lets_requests_through_evenly() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", LEAKY]);
    let began = Instant::now();
    let (a, b, c, d) = tokio::join!(proxy.get("/", ""), proxy.get("/", ""), proxy.get("/", ""), proxy.get("/", ""));
    assert_eq!([a.status, b.status, c.status, d.status], [200; 4]);
    assert!(began.elapsed() >= Duration::from_millis(590), "the fourth has its turn after three intervals of 200 ms");
}

#[tokio::test]
async fn a_full_queue_sheds_and_a_client_that_leaves_frees_its_place() {
    let upstream = Upstream::plain().await;
    let proxy =
        Proxy::start(upstream.address, &["--limit", "1/s burst 10 by global algorithm leaky_bucket", "--queue", "1"]);
    assert_eq!(proxy.get("/", "").await.status, 200, "the first has its turn at once");
    let mut waiting = proxy.connect().await;
    waiting.write_all(b"GET /waiting HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let shed = proxy.get("/shed", "").await;
    shed.problem(503);
    assert!(shed.header("retry-after").is_some() && shed.header("ratelimit").is_some(), "{shed:?}");
    drop(waiting);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(proxy.get("/after", "").await.status, 200, "there is a place again");
    let seen = upstream.seen().concat();
    assert!(!seen.contains("/waiting") && !seen.contains("/shed") && seen.contains("/after"), "{seen}");
}

#[tokio::test]
async fn the_bucket_itself_denies_when_it_is_full() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1/h burst 1 by global algorithm leaky_bucket"]);
    assert_eq!(proxy.get("/", "").await.status, 200);
    proxy.get("/", "").await.problem(429);
}

#[tokio::test]
async fn a_denied_request_waits_if_configured_and_if_its_wait_fits() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(
        upstream.address,
        &["--limit", "4/s burst 1 by ip", "--limit", "2/h by header.x-slow", "--wait", "2s"],
    );
    let began = Instant::now();
    for _ in 0..4 {
        assert_eq!(proxy.get("/", "").await.status, 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(740), "three of them waited for 250 ms each");
    for expected in [200, 200, 429] {
        assert_eq!(proxy.get("/", "x-slow: a\r\n").await.status, expected, "half an hour does not fit");
    }
}

/// The waiting room was one for all: one client's queue filled it, and requests of others were shed.
#[tokio::test]
async fn a_client_with_a_full_queue_does_not_shed_another() {
    let upstream = Upstream::plain().await;
    let limit = "2/s burst 100 by header.x-key algorithm leaky_bucket";
    let proxy = Proxy::start(upstream.address, &["--limit", limit, "--queue", "2"]);
    let mut eve = Vec::new();
    for _ in 0..6 {
        let mut stream = proxy.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-key: eve\r\n\r\n").await.unwrap();
        eve.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    proxy.get("/", "x-key: eve\r\n").await.problem(503);
    let (first, second) = tokio::join!(proxy.get("/", "x-key: ann\r\n"), proxy.get("/", "x-key: ann\r\n"));
    assert_eq!((first.status, second.status), (200, 200), "ann has a queue of her own");
}

/// The value of a series on the metrics page of the proxy; 0 if it is not there.
fn metric(proxy: &Proxy, series: &str) -> f64 {
    let page = Client::to(proxy.admin.as_ref().expect("an admin address")).get("/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    line.unwrap_or_default()
}

/// Nothing showed that requests waited or found no place, how the upstream did, and what was refused unread.
// Several threads: the upstream answers while this test waits.
#[tokio::test(flavor = "multi_thread")]
async fn waits_and_the_upstream_are_measured() {
    let upstream = Upstream::plain().await;
    let limit = "1/s burst 10 by global algorithm leaky_bucket";
    let proxy = Proxy::start(upstream.address, &["--limit", limit, "--queue", "1", "--admin", "127.0.0.1:0"]);
    assert_eq!(proxy.get("/", "").await.status, 200);
    let mut waiting = proxy.connect().await;
    waiting.write_all(b"GET /waiting HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    wait_until("it waits", || metric(&proxy, "tollkeeper_proxy_waiting") == 1.0);
    proxy.get("/shed", "").await.problem(503);
    assert_eq!(metric(&proxy, "tollkeeper_proxy_queue_full_total"), 1.0);
    let passed = "tollkeeper_proxy_wait_duration_seconds_count{outcome=\"passed\"}";
    wait_until("it was forwarded", || metric(&proxy, passed) == 1.0);
    assert_eq!(metric(&proxy, "tollkeeper_proxy_waiting"), 0.0);
    wait_until("both were answered", || metric(&proxy, "tollkeeper_upstream_responses_total{class=\"2xx\"}") == 2.0);
    assert_eq!(metric(&proxy, "tollkeeper_upstream_duration_seconds_count"), 2.0);
    let smuggled = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(proxy.send(smuggled).await.status, 400);
    let outcomes = ["allowed", "shed", "error"]
        .map(|outcome| format!("tollkeeper_requests_total{{front=\"proxy\",outcome=\"{outcome}\"}}"));
    assert_eq!(outcomes.map(|series| metric(&proxy, &series)), [2.0, 1.0, 1.0]);
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_counted_by_reason() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start(nobody, &["--limit", "100/s by global", "--admin", "127.0.0.1:0"]);
    proxy.get("/", "").await.problem(502);
    assert_eq!(metric(&proxy, "tollkeeper_upstream_errors_total{reason=\"unreachable\"}"), 1.0);
}
