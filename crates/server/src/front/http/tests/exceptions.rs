use super::*;

async fn put(gate: &Gate, body: Value) -> Reply {
    gate.ask("PUT /v1/exceptions", "", body.to_string()).await
}

async fn check(gate: &Gate, user: &str) -> Value {
    gate.check(json!({"attributes": {"user_id": user}})).await
}

#[tokio::test]
async fn a_key_is_blocked_shown_and_free_again() {
    let gate = Plan::new([per_user()]).open().await;
    let body = json!({"rule": "per-user", "key": "42", "kind": "block", "for_ms": 60_000, "reason": "scraper"});
    let made = put(&gate, body).await.json();
    assert_eq!(made["since"], "2026-01-01T00:00:00.000Z");
    assert_eq!(made["until"], "2026-01-01T00:01:00.000Z");
    let denied = check(&gate, "42").await;
    assert_eq!((&denied["allowed"], &denied["retry_after_ms"]), (&json!(false), &json!(60_000)));
    assert_eq!((&denied["source"], &denied["rules"][0]["exception"]), (&json!("exception"), &json!("block")));
    assert_eq!(check(&gate, "43").await["allowed"], true);
    assert_eq!(gate.get("/v1/exceptions").await.json(), json!({"exceptions": [made]}));
    let lift = async || gate.ask("DELETE /v1/exceptions?rule=per-user&key=42", "", "").await.json();
    assert_eq!((lift().await, lift().await), (json!({"lifted": true}), json!({"lifted": false})));
    assert_eq!(check(&gate, "42").await["allowed"], true);
    assert_eq!(gate.get("/v1/exceptions").await.json(), json!({"exceptions": []}));
}

/// A blocked client is denied like one at its limit, not with an error of the service.
#[tokio::test]
async fn a_proxy_is_reported_of_a_block_as_of_a_limit() {
    let by_ip = json!({"name": "per-ip", "key": "{ip}", "limit": "3/s"});
    let gate = Plan::new([by_ip]).open().await;
    put(&gate, json!({"key": "127.0.0.1", "kind": "block", "until": "2026-01-01T01:00:30+01:00"})).await.json();
    let denied = gate.get("/v1/authorize").await;
    assert_eq!((denied.status, denied.headers["retry-after"].as_str()), (429, "30"));
    assert!(denied.body.contains("Rule `per-ip` blocks this key; retry in 30 seconds."), "{}", denied.body);
    put(&gate, json!({"key": "127.0.0.1", "kind": "block"})).await.json();
    let denied = gate.get("/v1/authorize").await;
    assert_eq!((denied.status, denied.headers.get("retry-after")), (429, None));
    assert!(denied.body.contains("until further notice"), "{}", denied.body);
}

#[tokio::test]
async fn a_granted_limit_is_seen_everywhere_and_ends() {
    let gate = Plan::new([per_user()]).open().await;
    for _ in 0..3 {
        check(&gate, "42").await;
    }
    assert_eq!(check(&gate, "42").await["allowed"], false);
    put(&gate, json!({"rule": "per-user", "key": "42", "kind": "grant", "limit": "10/min", "for_ms": 500}))
        .await
        .json();
    let granted = check(&gate, "42").await;
    let row = &granted["rules"][0];
    assert_eq!((&row["limit"], &row["remaining"], &row["exception"]), (&json!(10), &json!(6), &json!("grant")));
    let bucket = gate.get("/v1/keys?rule=per-user&key=42").await.json();
    assert_eq!((&bucket["limit"], &bucket["remaining"]), (&json!(10), &json!(6)));
    gate.clock.advance(Span::from_micros(500_000));
    let after = check(&gate, "42").await;
    assert_eq!((&after["rules"][0]["limit"], &after["allowed"]), (&json!(3), &json!(false)), "four are missing");
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let gate = Plan::new([per_user()]).open().await;
    let cases = [
        (json!({}), 400, "key: is missing"),
        (json!({"key": "1"}), 400, "kind: is missing"),
        (json!({"key": "1", "kind": "blok"}), 400, "kind: \"blok\" is not known; did you mean `block`?"),
        (json!({"key": "1", "kind": "block", "fro_ms": 1}), 400, "fro_ms: is not known; did you mean `for_ms`?"),
        (json!({"key": 1, "kind": "block"}), 400, "key: must be a string, not 1"),
        (json!({"key": "1", "kind": "block", "limit": "1/s"}), 400, "limit: is for a grant"),
        (json!({"key": "1", "kind": "allow", "burst": 1}), 400, "burst: is for a grant"),
        (json!({"key": "1", "kind": "grant"}), 400, "limit: is missing"),
        (json!({"key": "1", "kind": "grant", "limit": "lots"}), 400, "limit: "),
        (json!({"key": "1", "kind": "grant", "limit": "1/s", "burst": 0}), 400, "burst: "),
        (json!({"key": "1", "kind": "block", "for_ms": 0}), 400, "for_ms: must be a whole number from 1 to "),
        (
            json!({"key": "1", "kind": "block", "until": "tomorrow"}),
            400,
            "until: \"tomorrow\" is not a time; use RFC 3339",
        ),
        (json!({"key": "1", "kind": "block", "until": "2025-12-31T00:00:00Z"}), 400, "until: is not in the future"),
        (
            json!({"key": "1", "kind": "block", "until": "2027-01-01T00:00:00Z", "for_ms": 1}),
            400,
            "until: cannot be combined with for_ms",
        ),
        (json!({"key": "", "kind": "block"}), 400, "key: is empty"),
        (
            json!({"rule": "per-uesr", "key": "1", "kind": "block"}),
            404,
            "rule: there is none named \"per-uesr\"; did you mean",
        ),
    ];
    for (body, status, detail) in cases {
        let reply = put(&gate, body.clone()).await;
        assert!(reply.problem(status).starts_with(detail), "{body}: {}", reply.body);
    }
    assert_eq!(gate.get("/v1/exceptions").await.json(), json!({"exceptions": []}));
}

#[tokio::test]
async fn only_those_with_the_token_make_exceptions() {
    let gate = Plan::new([per_user()]).open().await;
    for request in ["GET /v1/exceptions", "PUT /v1/exceptions", "DELETE /v1/exceptions?rule=*&key=1"] {
        assert_eq!(gate.send(request, "", "").await.status, 401, "{request}");
    }
    assert_eq!(gate.ask("GET /v1/exceptions", "", "").await.status, 200);
}
