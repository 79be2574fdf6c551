//! Decisions, and what clients see of them.

use tollkeeper_testkit::file;

use super::world::{Proxy, Upstream};

#[tokio::test]
async fn every_answer_carries_the_limits_and_a_denial_says_when_to_come_back() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "2/90s by header.x-api-key|ip"]);
    let first = proxy.get("/", "x-api-key: a\r\n").await;
    assert_eq!((first.status, first.body.as_str()), (200, "hello"));
    assert_eq!(first.header("ratelimit-policy").as_deref(), Some("\"limit\";q=2;w=90"));
    assert!(first.header("ratelimit").unwrap().starts_with("\"limit\";r=1"), "{first:?}");
    proxy.get("/", "x-api-key: a\r\n").await;
    let denied = proxy.get("/", "x-api-key: a\r\n").await;
    let problem = denied.problem(429);
    assert_eq!(problem["violated-policies"][0], "limit");
    assert_eq!(denied.header("retry-after").as_deref(), Some("45"));
    assert!(denied.header("ratelimit").unwrap().starts_with("\"limit\";r=0"), "{denied:?}");
    assert_eq!(proxy.get("/", "x-api-key: b\r\n").await.status, 200, "another key");
    assert_eq!(proxy.get("/", "").await.status, 200, "no key: by address");
    assert_eq!(upstream.only().matches("GET").count(), 4, "a denied request does not arrive");
}

#[tokio::test]
async fn what_the_upstream_says_under_the_same_names_is_replaced() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nratelimit: \"theirs\";r=9\r\nRateLimit: \"theirs\";r=8\r\n\
                  ratelimit-policy: \"theirs\";q=9\r\nx-ratelimit-limit: 9\r\n\r\nok";
    let upstream = Upstream::answering(answer).await;
    let reply = Proxy::start(upstream.address, &["--limit", "5/h"]).get("/", "").await;
    assert!(reply.header("ratelimit").unwrap().starts_with("\"limit\";r=4"), "{reply:?}");
    assert!(!reply.head.contains("theirs"), "{reply:?}");
    assert_eq!(reply.header("x-ratelimit-limit").as_deref(), Some("9"), "another name is another matter");
    let quiet = Proxy::start(upstream.address, &["--limit", "5/h", "--headers", "none"]).get("/", "").await;
    assert!(quiet.header("ratelimit").unwrap().contains("theirs"), "{quiet:?}");
}

#[tokio::test]
async fn a_header_that_the_upstream_does_not_see_opens_no_bucket() {
    // A client could name its key's header in `Connection`: the upstream would not see it, and each request would get
    // a fresh bucket. Rules see what the upstream sees.
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "1/h by header.x-api-key|ip"]);
    let mut statuses = Vec::new();
    for nth in 0..3 {
        let headers = format!("connection: x-api-key\r\nx-api-key: {nth}\r\n");
        statuses.push(proxy.get("/", &headers).await.status);
    }
    assert_eq!(statuses, [200, 429, 429]);
}

#[tokio::test]
async fn rules_of_a_file_and_limits_of_flags_are_enforced_together() {
    let rules = "identify: { user: cookie.sid }\ndeny_status: 403\nrules:\n  - { name: login, key: '{user}', limit: 1/h, when: { path: /login, method: POST, query.a: '1' } }\n";
    let path = file(rules, "yaml");
    let upstream = Upstream::plain().await;
    let proxy =
        Proxy::start(upstream.address, &["--config", &path, "--limit", "3/h by user|ip", "--limit", "9/h by global"]);
    assert!(proxy.greeting.iter().any(|line| line.contains("rules: 3")), "{:?}", proxy.greeting);
    let login =
        "POST //x/../login?a=1 HTTP/1.1\r\nhost: a\r\ncookie: sid=s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let first = proxy.send(login).await;
    assert_eq!((first.status, first.header("ratelimit").unwrap().split(',').count()), (200, 3), "{first:?}");
    assert_eq!(proxy.send(login).await.problem(403)["violated-policies"][0], "login");
    for expected in [200, 200, 403] {
        assert_eq!(proxy.get("/", "cookie: sid=s\r\n").await.status, expected, "a denied login cost nothing elsewhere");
    }
}

#[tokio::test]
async fn pipelined_requests_are_decided_one_by_one() {
    let upstream = Upstream::plain().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "2/h"]);
    let one = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut stream = proxy.connect().await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{one}{one}{one}{last}").as_bytes()).await.unwrap();
    let answers = String::from_utf8(super::world::read_to_end(&mut stream).await).unwrap();
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "200", "429", "429"]);
}
