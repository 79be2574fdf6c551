//! How the proxy starts, which settings it refuses, and how it stops.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use tollkeeper_testkit::http::{Answer, Client};
use tollkeeper_testkit::{file, tollkeeper};

use super::world::{Proxy, Upstream, read_to_end, read_until, run};

fn error(args: &[&str]) -> String {
    let output = run(&[&["proxy", "--listen", "127.0.0.1:0"], args].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let upstream = ["--upstream", "http://127.0.0.1:1"];
    let with = |args: &[&str]| error(&[&upstream, args].concat());
    assert!(error(&["--limit", "1/s"]).contains("--upstream"));
    assert!(with(&[]).contains("there is no limit"));
    assert!(
        error(&["--upstream", "https://a_.-test", "--limit", "1/s"]).contains("cannot be the name in a certificate")
    );
    assert!(error(&["--upstream", "ftp://a.test", "--limit", "1/s"]).contains("ftp:// is not supported"));
    assert!(error(&["--upstream", "a.test:80", "--limit", "1/s"]).contains("http://127.0.0.1:3000"));
    assert!(error(&["--upstream", "http://a.test/api", "--limit", "1/s"]).contains("remove /api"));
    assert!(with(&["--limit", "ten/s"]).contains("--limit: limit: \"ten/s\""), "{}", with(&["--limit", "ten/s"]));
    assert!(
        with(&["--limit", "1/s bust 3"])
            .contains("only burst, by, algorithm, hold, timezone and anchor_day may follow"),
        "{}",
        with(&["--limit", "1/s bust 3"])
    );
    assert!(with(&["--limit", "1/s burst 0"]).contains("--limit: burst:"), "{}", with(&["--limit", "1/s burst 0"]));
    assert!(with(&["--limit", "1/s by header"]).contains("by: \"header\""), "{}", with(&["--limit", "1/s by header"]));
    assert!(
        with(&["--limit", "1/s", "--trusted-proxies", "x"]).contains("trusted_proxies[0]: \"x\" is not an address")
    );
    let header = with(&["--limit", "1/s", "--client-address", "x real ip"]);
    assert!(header.contains("--client-address: \"x real ip\" is not a header name"), "{header}");
    assert!(with(&["--limit", "1/s", "--response-timeout", "0s"]).contains("write for example 30s"));
    assert!(with(&["--limit", "1/s", "--config", "no-such-file.yaml"]).contains("there is no such file"));
}

#[tokio::test]
async fn it_says_what_it_does_and_takes_everything_from_the_environment() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "100/min burst 20 by header.x-api-key|ip"]);
    let greeting = proxy.greeting.join("\n");
    for line in [
        "listening on http://127.0.0.1:",
        &format!("upstream: http://{}", upstream.address),
        "store: memory",
        "client IP: the peer address; behind a proxy, add the proxy to trusted_proxies",
        "rules: 1",
        "100/min burst 20",
        "by {header.x-api-key|ip}",
        "curl -i http://127.0.0.1:",
    ] {
        assert!(greeting.contains(line), "{line}: {greeting}");
    }
    let output = tollkeeper(&["proxy"])
        .env("TOLLKEEPER_UPSTREAM", "http://127.0.0.1:1")
        .env("TOLLKEEPER_LIMIT", "1/s; 2/s by nobody")
        .output()
        .unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("by: \"nobody\""));
}

#[tokio::test]
async fn health_and_metrics_are_served_beside_it_when_asked_for() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(
        upstream.address,
        &["--limit", "1/h", "--admin", "127.0.0.1:0", "--admin-token", "open-sesame-open-sesame"],
    );
    proxy.get("/", "").await;
    proxy.get("/", "").await;
    let admin = Client::to(proxy.admin.as_ref().expect("an admin address"));
    let page = admin.with("authorization", "Bearer open-sesame-open-sesame").get("/metrics");
    assert!(
        page.contains("tollkeeper_decisions_total{rule=\"limit\",outcome=\"denied\",source=\"store\"} 1"),
        "{page}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn sigterm_finishes_the_requests_under_way() {
    let upstream = Upstream::serving(|mut visitor| async move {
        visitor.head().await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        visitor.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow").await;
    })
    .await;
    let proxy = Proxy::wide(upstream.address);
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    proxy.signal("-TERM");
    assert!(read_until(&mut stream, "slow").await.starts_with("HTTP/1.1 200"));
    assert_eq!(proxy.ended().await, Some(0));
}

/// A client that sent half a body and left kept the proxy from stopping for the whole drain time.
#[cfg(unix)]
#[tokio::test]
async fn half_a_body_does_not_keep_it_from_stopping() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "9/s", "--drain-timeout", "1h"]);
    let mut stream = proxy.connect().await;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    while upstream.seen().concat().find("half").is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    proxy.signal("-TERM");
    let problem = Answer::parse(&read_to_end(&mut stream).await).problem(408);
    assert!(problem["detail"].as_str().unwrap().contains("no more of the body arrived within 1s"), "{problem}");
    assert_eq!(proxy.ended().await, Some(0));
}

#[cfg(unix)]
#[tokio::test]
async fn sighup_reloads_the_file_and_keeps_the_limits_of_flags() {
    let rule = |name: &str| format!("rules: [{{name: {name}, key: global, limit: 100/h}}]");
    let path = file(&rule("before"), "yaml");
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--config", &path, "--limit", "100/h"]);
    assert!(proxy.get("/", "").await.head.contains("\"before\";q=100"));
    std::fs::write(&path, rule("after")).unwrap();
    proxy.signal("-HUP");
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let head = proxy.get("/", "").await.head;
        if head.contains("\"after\";q=100") {
            assert!(head.contains("\"limit\";q=100"), "{head}");
            return;
        }
    }
    panic!("the rules were not reloaded");
}
