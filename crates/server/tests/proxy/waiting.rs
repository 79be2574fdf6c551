//! Requests that wait for their turn.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;

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
async fn a_denied_request_waits_if_told_and_if_its_wait_fits() {
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
