use super::*;

#[tokio::test]
async fn allowed_is_200_with_the_limits_and_denied_says_when_to_come_back() {
    let gate = Plan::new([per_ip()]).open().await;
    let allowed = gate.get("/v1/authorize").await;
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("ratelimit-policy"), r#""per-ip";q=2;w=3600"#);
    assert_eq!(allowed.header("ratelimit"), r#""per-ip";r=1;t=3600"#);
    assert_eq!((allowed.header("content-length"), allowed.body.as_str()), ("0", ""));
    gate.get("/v1/authorize").await;
    gate.clock.advance(Span::from_micros(1));
    let denied = gate.get("/v1/authorize").await;
    assert!(denied.problem(429).contains("`per-ip`"));
    assert_eq!(denied.header("retry-after"), "3600", "3599.999999 s, rounded up");
    assert_eq!(denied.header("ratelimit"), r#""per-ip";r=0;t=3600"#);
    assert_eq!(denied.header("cache-control"), "no-store");
    assert_eq!(denied.json()["violated-policies"], json!(["per-ip"]));
}

#[tokio::test]
async fn every_method_is_taken_and_no_body_is_waited_for() {
    let gate = Plan::new([json!({"name": "m", "key": "{method}", "limit": "1/h"})]).open().await;
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY", "PURGE"] {
        for expected in [200, 429] {
            let reply = gate.ask(&format!("{method} /v1/authorize"), "content-length: 1000000\r\n", "").await;
            assert_eq!(reply.status, expected, "{method}");
        }
    }
    let head = gate.ask("HEAD /v1/authorize", "", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_ne!(head.header("ratelimit"), "");
    let head = gate.ask("HEAD /v1/authorize", "", "").await;
    assert_eq!((head.status, head.body.as_str()), (429, ""));
}

/// The answer had a body of 16 bytes, which nginx's `auth_request` does not read: it closed the connection, and opened
/// another one for every request.
#[tokio::test]
async fn a_connection_stays_open_though_nobody_reads_a_body() {
    let gate =
        Plan::new([json!({"name": "q", "key": "global", "limit": "1/s", "burst": 9, "algorithm": "leaky_bucket"})])
            .open()
            .await;
    let mut stream = gate.connect().await;
    let mut delays = Vec::new();
    for _ in 0..3 {
        stream.write_all(b"GET /v1/authorize HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut bytes).await.expect("read") > 0, "closed");
        }
        let (reply, rest) = Reply::parse(&bytes);
        assert_eq!((reply.status, reply.header("content-length"), rest), (200, "0", &b""[..]));
        delays.push(reply.header("tollkeeper-delay-ms").to_string());
    }
    assert_eq!(delays, ["", "1000", "2000"]);
}

/// Sends a request that only one of several buckets counts, and finds out which one was charged.
async fn charged(template: &str, path: &str, headers: &str) -> String {
    let gate = Plan::new([json!({"name": "r", "key": template, "limit": "1/h"})]).open().await;
    gate.ask(&format!("GET {path}"), headers, "").await;
    let page = gate.service.limiter.policy();
    let rule = page.rule("r").expect("the rule");
    let mut candidates =
        vec!["GET", "POST", "gate.localhost", "shop.test", "/", "/api/a%20b", "/v1/authorize", "1", "2"];
    candidates.extend(["/orders", "/\"é", "/other"]);
    let mut found = Vec::new();
    for candidate in candidates {
        let buckets = gate.service.limiter.inspect(rule.name(), candidate).await.expect("a rule").expect("a store");
        if buckets.iter().any(|bucket| bucket.decision.remaining == 0) {
            found.push(candidate);
        }
    }
    found.join(" ")
}

#[tokio::test]
async fn the_original_request_is_the_one_that_counts() {
    let cases = [
        // Template, path, headers: the bucket that is charged.
        ("{method}", "/v1/authorize", "", "GET"),
        ("{method}", "/v1/authorize", "x-forwarded-method: POST\r\n", "POST"),
        ("{method}", "/v1/authorize", "x-original-method: POST\r\n", "POST"),
        ("{method}", "/v1/authorize", "x-forwarded-method: \r\n", "GET"),
        ("{path}", "/v1/authorize", "", "/v1/authorize"),
        ("{path}", "/v1/authorize", "x-forwarded-uri: /orders?page=2\r\n", "/orders"),
        ("{path}", "/v1/authorize", "x-original-uri: /orders\r\n", "/orders"),
        ("{path}", "/v1/authorize", "x-original-uri: http://evil.test/orders\r\n", "/orders"),
        ("{path}", "/v1/authorize/", "x-original-uri: /orders\r\n", "/orders"),
        ("{query.page}", "/v1/authorize?page=1", "x-forwarded-uri: /orders?page=2\r\n", "2"),
        ("{query.page}", "/v1/authorize?page=1", "", "1"),
        ("{host}", "/v1/authorize", "", "gate.localhost"),
        ("{host}", "/v1/authorize", "x-forwarded-host: shop.test\r\n", "shop.test"),
        ("{host}", "/v1/authorize", "x-forwarded-host: Shop.test:443\r\nx-forwarded-uri: http://x/\r\n", "shop.test"),
    ];
    for (template, path, headers, expected) in cases {
        assert_eq!(charged(template, path, headers).await, expected, "{template} of {path} with {headers:?}");
    }
}

/// Envoy appends the original path to its prefix. Headers from a client must not hide it.
#[tokio::test]
async fn a_path_below_the_prefix_is_the_original_one() {
    let spoofed = "x-forwarded-uri: /other\r\nx-forwarded-method: POST\r\nx-forwarded-host: shop.test\r\n";
    let cases = [
        ("{path}", "/v1/authorize/orders", "", "/orders"),
        ("{path}", "/v1/authorize/api/a%20b", "", "/api/a%20b"),
        ("{path}", "/v1/authorize/", "", "/"),
        ("{query.page}", "/v1/authorize/orders?page=2", "", "2"),
        ("{path}", "/v1/authorize/orders", spoofed, "/orders"),
        ("{method}", "/v1/authorize/orders", spoofed, "GET"),
        ("{host}", "/v1/authorize/orders", spoofed, "gate.localhost"),
    ];
    for (template, path, headers, expected) in cases {
        assert_eq!(charged(template, path, headers).await, expected, "{template} of {path} with {headers:?}");
    }
}

#[tokio::test]
async fn a_target_that_no_strict_reader_takes_is_read_all_the_same() {
    assert_eq!(charged("{path}", "/v1/authorize", "x-original-uri: /\"é\r\n").await, "/\"é");
    assert_eq!(charged("{path}", "/v1/authorize", "x-original-uri: /api/a b\r\n").await, "/api/a%20b");
}

#[tokio::test]
async fn a_proxy_that_makes_no_sense_is_reported() {
    let gate = Plan::new([per_ip()]).open().await;
    let reply = gate.ask("GET /v1/authorize", "x-forwarded-uri: orders\r\n", "").await;
    assert!(reply.problem(400).starts_with("x-forwarded-uri: \"orders\" is not a path"));
    let reply = gate.ask("GET /v1/authorize", "x-forwarded-method: G T\r\n", "").await;
    assert!(reply.problem(400).starts_with("x-forwarded-method: \"G T\" is not a method"));
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client() {
    let forwarded = |client: &str| format!("x-forwarded-for: {client}\r\n");
    let statuses = async |gate: &Gate| {
        let mut statuses = Vec::new();
        for client in ["203.0.113.1", "203.0.113.2", "203.0.113.3"] {
            statuses.push(gate.ask("GET /v1/authorize", &forwarded(client), "").await.status);
        }
        statuses
    };
    let gate = Plan::new([per_ip()]).open().await;
    assert_eq!(statuses(&gate).await, [200, 200, 429], "all of them are the peer");
    let gate = Plan::new([per_ip()]).trust("127.0.0.0/8").open().await;
    assert_eq!(statuses(&gate).await, [200, 200, 200]);
}

#[tokio::test]
async fn a_cost_that_is_no_number_is_the_clients_mistake() {
    let gate = Plan::new([json!({"name": "r", "key": "all", "limit": "9/s", "cost": "header.x-parts"})]).open().await;
    let reply = gate.ask("GET /v1/authorize", "x-parts: many\r\n", "").await;
    assert!(reply.problem(400).contains("header.x-parts"));
}

/// nginx passes client headers on beside the X-Original-URI that it sets: a client that sent X-Forwarded-Uri was
/// judged by that path and bypassed the rule for its actual path.
#[tokio::test]
async fn headers_that_disagree_about_the_request_are_refused() {
    let gate = Plan::new([per_user()]).open().await;
    for (headers, field) in [
        ("x-original-uri: /login\r\nx-forwarded-uri: /x\r\n", "x-forwarded-uri"),
        ("x-original-method: POST\r\nx-forwarded-method: GET\r\n", "x-forwarded-method"),
        // Two lines of one header: the first was read here, and the last is the proxy's.
        ("x-forwarded-uri: /x\r\nx-forwarded-uri: /login\r\n", "x-forwarded-uri"),
        ("x-original-method: GET\r\nx-original-method: POST\r\n", "x-original-method"),
    ] {
        let detail = gate.ask("GET /v1/authorize", headers, "").await.problem(400);
        assert!(detail.starts_with(field), "{detail}");
    }
    let same = "x-original-uri: /login\r\nx-forwarded-uri: /login\r\nx-forwarded-uri: /login\r\n";
    assert_eq!(gate.ask("GET /v1/authorize", same, "").await.status, 200);
}

/// A proxy appends to what its client sent: `X-Forwarded-Host: anything, shop.test` was read as no host, and no rule by host
/// applied.
#[tokio::test]
async fn the_last_host_is_the_proxys() {
    let gate = Plan::new([json!({"name": "each", "key": "{host}", "limit": "2/h"})]).open().await;
    for (headers, remaining) in
        [("x-forwarded-host: shop.test\r\n", 1), ("x-forwarded-host: made-up, shop.test\r\n", 0)]
    {
        assert_eq!(gate.ask("GET /v1/authorize", headers, "").await.status, 200);
        let shown = gate.get("/v1/keys?rule=each&key=shop.test").await.json();
        assert_eq!(shown["remaining"], remaining, "{headers}");
    }
    let denied = gate.ask("GET /v1/authorize", "x-forwarded-host: a\r\nx-forwarded-host: shop.test\r\n", "").await;
    assert_eq!(denied.status, 429);
}

#[tokio::test]
async fn the_proxy_learns_of_soft_limits_for_its_upstream() {
    let soft = json!({"name": "soft", "key": "{ip}", "limit": "1/h", "mode": "annotate"});
    let gate = Plan::new([soft]).open().await;
    let within = gate.get("/v1/authorize").await;
    assert_eq!((within.status, within.header("tollkeeper-over-limit")), (200, ""));
    let over = gate.get("/v1/authorize").await;
    assert_eq!((over.status, over.header("tollkeeper-over-limit")), (200, r#""soft";over=1;limit=1;t=3600"#));
    assert_eq!(over.header("ratelimit"), "", "clients see no soft limit");
}
