//! What the proxy passes on, what it adds, and what it removes (hop-by-hop headers).

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use tollkeeper_testkit::file;
use tollkeeper_testkit::http::header;

use super::world::{Proxy, Upstream};

#[tokio::test]
async fn the_client_is_who_the_named_header_says() {
    let upstream = Upstream::plain().await;
    let flags = ["--trusted-proxies", "127.0.0.1", "--client-address", "CF-Connecting-IP"];
    let proxy = Proxy::start(upstream.address, &[&["--limit", "1/h by ip"], flags.as_slice()].concat());
    let expected = "client IP: CF-Connecting-IP from trusted proxies (127.0.0.1), otherwise the peer address";
    assert!(proxy.greeting.iter().any(|line| line == expected), "{:?}", proxy.greeting);
    let sent = "cf-connecting-ip: 203.0.113.7\r\nx-forwarded-for: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\n";
    assert_eq!(proxy.get("/", sent).await.status, 200);
    assert_eq!(proxy.get("/", "cf-connecting-ip: 203.0.113.8\r\n").await.status, 200, "another client");
    proxy.get("/", "cf-connecting-ip: ::ffff:203.0.113.7\r\nx-forwarded-for: 6.6.6.7\r\n").await.problem(429);
    let seen = upstream.seen().concat();
    assert!(seen.contains("x-forwarded-for: 203.0.113.7, 127.0.0.1\r\n") && !seen.contains("6.6.6."), "{seen}");
}

#[tokio::test]
async fn requests_and_responses_pass_as_they_are() {
    let answer = "HTTP/1.1 201 Created\r\ncontent-length: 4\r\nx-own: 1\r\nset-cookie: a\r\nset-cookie: b\r\n\r\ndone";
    let upstream = Upstream::answering(answer).await;
    let proxy = Proxy::wide(upstream.address);
    let request = "PUT /a%2Fb//c/../d?q=1&q=%20 HTTP/1.1\r\nhost: Shop.test:81\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 3\r\n\
                   connection: close\r\n\r\nabc";
    let reply = proxy.send(request).await;
    assert_eq!((reply.status, reply.body.as_str()), (201, "done"), "{reply:?}");
    assert_eq!(reply.header("set-cookie").unwrap(), "a, b");
    assert_eq!(reply.header("x-own").unwrap(), "1");
    assert_eq!(reply.header("via").unwrap(), "1.1 tollkeeper");
    let seen = upstream.only();
    assert!(seen.starts_with("PUT /a%2Fb//c/../d?q=1&q=%20 HTTP/1.1\r\n"), "{seen}");
    assert_eq!(header(&seen, "host").unwrap(), "Shop.test:81");
    assert_eq!(header(&seen, "x-a").unwrap(), "1, 2");
    assert_eq!(header(&seen, "content-length").unwrap(), "3");
    assert_eq!(header(&seen, "via").unwrap(), "1.1 tollkeeper");
    assert!(seen.ends_with("\r\n\r\nabc"), "{seen}");
}

#[tokio::test]
async fn answers_without_a_body_keep_their_length() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n").await;
    let proxy = Proxy::wide(upstream.address);
    let reply = proxy.send("HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("content-length").as_deref(), reply.body.as_str()), (200, Some("1234"), ""));

    let upstream = Upstream::answering("HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\n").await;
    let reply = Proxy::wide(upstream.address).get("/", "").await;
    assert_eq!((reply.status, reply.header("etag").as_deref(), reply.body.as_str()), (304, Some("\"x\""), ""));
}

#[tokio::test]
async fn a_request_without_a_body_gets_none() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    proxy.get("/", "").await;
    proxy.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    let seen = upstream.only();
    let (get, post) = seen.split_once("POST").unwrap();
    assert_eq!((header(get, "content-length"), header(get, "transfer-encoding")), (None, None), "{get}");
    assert_eq!(header(post, "content-length").as_deref(), Some("0"), "{post}");
}

/// Chunked bodies of GET and HEAD were dropped without a word.
#[tokio::test]
async fn a_body_arrives_whatever_the_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "SEARCH"] {
        for (body, sent) in [
            ("content-length: 5\r\n\r\nhello", "\r\n\r\nhello"),
            ("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ] {
            let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            let proxy = Proxy::wide(upstream.address);
            let reply = proxy.send(format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{body}")).await;
            let seen = upstream.only();
            assert!(reply.status == 200 && seen.ends_with(sent), "{method}: {seen}");
        }
    }
}

#[tokio::test]
async fn connections_to_the_upstream_are_used_again() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::wide(upstream.address);
    for _ in 0..20 {
        assert_eq!(proxy.get("/", "").await.body, "hello");
    }
    assert_eq!(upstream.only().matches("GET / HTTP/1.1").count(), 20);
}

#[tokio::test]
async fn what_concerns_one_connection_ends_there_in_both_directions() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive, x-internal\r\nkeep-alive: timeout=9\r\n\
                  proxy-authenticate: Basic\r\nx-internal: secret\r\nupgrade: h2c\r\n\r\nok";
    let upstream = Upstream::answering(answer).await;
    let proxy = Proxy::wide(upstream.address);
    let headers = "connection: x-hop, host, te\r\nx-hop: 1\r\nkeep-alive: 5\r\nproxy-connection: x\r\nproxy-authorization: y\r\n\
                   te: gzip\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n";
    let reply = proxy.get("/", headers).await;
    for name in ["keep-alive", "proxy-authenticate", "x-internal", "upgrade"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    let seen = upstream.only();
    for name in ["x-hop", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade", "connection"] {
        assert_eq!(header(&seen, name), None, "{name}: {seen}");
    }
    assert_eq!(header(&seen, "host").as_deref(), Some("a.test"));
}

#[tokio::test]
async fn untrusted_peers_do_not_say_where_they_come_from() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "2/h by ip"]);
    let mut statuses = Vec::new();
    for nth in 1..=3 {
        let spoofed = format!(
            "x-forwarded-for: 6.6.6.{nth}\r\nforwarded: for=6.6.6.{nth}\r\nx-forwarded-proto: https\r\n\
             x-forwarded-host: bank.test\r\nx-real-ip: 6.6.6.6\r\n"
        );
        statuses.push(proxy.get("/", &spoofed).await.status);
    }
    assert_eq!(statuses, [200, 200, 429], "all of them are one client");
    let seen = upstream.only();
    assert_eq!(header(&seen, "x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(header(&seen, "x-forwarded-proto").as_deref(), Some("http"));
    assert_eq!(header(&seen, "x-forwarded-host").as_deref(), Some("a.test"));
    assert_eq!((header(&seen, "forwarded"), header(&seen, "x-real-ip")), (None, None));
    assert!(!seen.contains("6.6.6"), "{seen}");
}

#[tokio::test]
async fn trusted_proxies_are_continued_and_distinguish_clients() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1/h by ip", "--trusted-proxies", "127.0.0.0/8"]);
    let first = "x-forwarded-for: 6.6.6.6, 203.0.113.7\r\nx-forwarded-proto: https\r\n";
    assert_eq!(proxy.get("/", first).await.status, 200);
    assert_eq!(proxy.get("/", "x-forwarded-for: 1.1.1.1, 203.0.113.7\r\n").await.status, 429, "the same client");
    assert_eq!(proxy.get("/", "x-forwarded-for: 203.0.113.8\r\n").await.status, 200);
    let seen = upstream.only();
    assert_eq!(header(&seen, "x-forwarded-for").as_deref(), Some("6.6.6.6, 203.0.113.7, 127.0.0.1"));
    assert_eq!(header(&seen, "x-forwarded-proto").as_deref(), Some("https"));
}

#[tokio::test]
async fn http_2_clients_reach_an_http_1_upstream() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "2/h by header.x-api-key"]);
    let io = TokioIo::new(proxy.connect().await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let request = http::Request::post("http://shop.test/orders?a=b").header("x-api-key", "k");
        let request = request.body(Full::new(Bytes::from_static(b"body"))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert!(response.headers().contains_key("ratelimit"));
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        answers.push((status, body.starts_with(b"hello")));
    }
    assert_eq!(answers, [(200, true), (200, true), (429, false)]);
    let seen = upstream.only();
    assert!(seen.starts_with("POST /orders?a=b HTTP/1.1\r\n"), "{seen}");
    assert_eq!(header(&seen, "host").as_deref(), Some("shop.test"));
    assert_eq!(header(&seen, "via").as_deref(), Some("2 tollkeeper"));
    assert_eq!(header(&seen, "content-length").as_deref(), Some("4"));
}

#[tokio::test]
async fn trailers_pass_where_they_are_welcome() {
    let answer =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
    let upstream = Upstream::answering(answer).await;
    let proxy = Proxy::wide(upstream.address);
    let welcome = proxy.get("/", "te: trailers\r\n").await;
    assert!(welcome.body.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{welcome:?}");
    assert_eq!(header(&upstream.only(), "te").as_deref(), Some("trailers"));
    assert!(!proxy.get("/", "").await.body.contains("x-sum"));
}

#[tokio::test]
async fn an_http_1_0_client_gets_no_chunks() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let upstream = Upstream::answering(answer).await;
    let reply = Proxy::wide(upstream.address).send("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!((reply.header("transfer-encoding"), reply.body.as_str()), (None, "hello"), "{reply:?}");
    let seen = upstream.only();
    assert!(seen.starts_with("GET / HTTP/1.1\r\n"), "{seen}");
    assert_eq!(header(&seen, "host"), Some(upstream.address.to_string()));
    assert_eq!(header(&seen, "via").as_deref(), Some("1.0 tollkeeper"));
}

#[tokio::test]
async fn the_upstream_is_told_of_soft_limits_and_no_client_can_say_so() {
    let upstream = Upstream::plain().await;
    let rules = "rules: [{name: soft, key: global, limit: 1/h, mode: annotate}]";
    let proxy = Proxy::start(upstream.address, &["--config", &file(rules, "yaml")]);
    for _ in 0..2 {
        assert_eq!(proxy.get("/", "tollkeeper-over-limit: mine\r\n").await.status, 200);
    }
    // Both may have come on one connection.
    let seen = upstream.seen().concat();
    let requests: Vec<&str> = seen.split_inclusive("\r\n\r\n").collect();
    assert_eq!(header(requests[0], "tollkeeper-over-limit"), None, "{seen}");
    let told = header(requests[1], "tollkeeper-over-limit").unwrap();
    assert!(told.starts_with(r#""soft";over=1;limit=1;t=3"#), "{told}");
    assert!(!seen.contains("mine"), "{seen}");
}
