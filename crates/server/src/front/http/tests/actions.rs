use super::*;

async fn put(gate: &Gate, query: &str, body: Value) -> Reply {
    gate.ask(&format!("PUT /v1/exceptions{query}"), "", body.to_string()).await
}

async fn delete(gate: &Gate, path: &str) -> Reply {
    gate.ask(&format!("DELETE {path}"), "", "").await
}

#[tokio::test]
async fn what_was_done_to_a_key_is_reported_with_who_when_until_when_and_why() {
    let gate = Plan::new([per_user()]).open().await;
    let block = json!({"rule": "per-user", "key": "42", "kind": "block", "for_ms": 60_000, "reason": "scraper"});
    assert_eq!(put(&gate, "?as=ann", block).await.status, 200);
    gate.clock.advance(Span::from_secs(60));
    put(&gate, "", json!({"key": "43", "kind": "grant", "limit": "9/s", "burst": 20})).await;
    put(&gate, "", json!({"key": "44", "kind": "allow"})).await;
    delete(&gate, "/v1/exceptions?rule=*&key=43&as=bob").await;
    delete(&gate, "/v1/exceptions?rule=*&key=43").await;
    delete(&gate, "/v1/keys?rule=per-user&key=42&as=").await;
    let all = gate.get("/v1/actions").await.json();
    assert_eq!((&all["source"], &all["dropped"]), (&json!("memory"), &json!(0)));
    let shown: Vec<String> = all["actions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| ["action", "rule", "key", "by"].map(|field| one[field].as_str().expect("text")).join(" "))
        .collect();
    // A lift that found nothing is not an action.
    let expected = [
        "reset per-user 42 admin token",
        "lift * 43 bob (admin token)",
        "allow * 44 admin token",
        "grant * 43 admin token",
        "block per-user 42 ann (admin token)",
    ];
    assert_eq!(shown, expected);
    let first = &all["actions"][4];
    let expected = json!({
        "at": "2026-01-01T00:00:00.000Z", "action": "block", "rule": "per-user", "key": "42", "key_by": null, "limit": null,
        "until": "2026-01-01T00:01:00.000Z", "reason": "scraper", "by": "ann (admin token)", "instance": first["instance"],
    });
    assert_eq!(first, &expected);
    assert_eq!(all["actions"][3]["limit"], "9/s burst 20");
    let count = async |query: &str| {
        let found = gate.get(&format!("/v1/actions?{query}")).await.json();
        found["actions"].as_array().expect("a list").len()
    };
    for (query, expected) in [
        ("key=42", 2),
        ("rule=per-user&key=42&action=block", 1),
        ("rule=*", 3),
        ("since=30s", 4),
        ("until=2026-01-01T00:00:30Z", 1),
        ("limit=2", 2),
        ("rule=other", 0),
    ] {
        assert_eq!(count(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn a_secret_is_kept_by_its_fingerprint_and_found_by_who_knows_it() {
    let by_key = json!({"name": "per-key", "key": "{api_key|ip}", "limit": "9/s"});
    let gate = Plan::new([by_key]).open().await;
    for key in ["k-very-secret", "203.0.113.9"] {
        put(&gate, "", json!({"rule": "per-key", "key": key, "kind": "block"})).await;
    }
    let all = gate.get("/v1/actions").await;
    assert!(!all.body.contains("k-very-secret"), "{}", all.body);
    assert_eq!(all.json()["actions"][0]["key"], "203.0.113.9");
    let found = gate.get("/v1/actions?key=k-very-secret").await.json();
    let key = found["actions"][0]["key"].as_str().expect("it is found");
    assert!(key.starts_with("sha256:"), "{key}");
}

#[tokio::test]
async fn a_question_or_a_name_that_makes_no_sense_is_400_and_names_the_field() {
    let gate = Plan::new([per_user()]).open().await;
    let long = "x".repeat(201);
    for (request, detail) in [
        ("GET /v1/actions?action=blok", "action: \"blok\" is not known; did you mean `block`?"),
        ("GET /v1/actions?user_id=1", "user_id: is not known; use one of action, rule, key"),
        ("GET /v1/actions?limit=0", "limit: must be a whole number from 1 to 1000, not 0"),
        ("GET /v1/actions?since=then", "since: \"then\" is not a time; use 1h"),
        ("GET /v1/actions?rule=", "rule: is empty"),
        ("GET /v1/actions?key=a&key=b", "key: is given twice"),
        ("GET /v1/keys?rule=per-user&key=1&as=ann", "as: is not known"),
        ("PUT /v1/exceptions?az=ann", "az: is not known; did you mean `as`?"),
        (&format!("PUT /v1/exceptions?as={long}"), "as: must be at most 200 characters, without NUL"),
        ("DELETE /v1/keys?rule=per-user&key=1&as=%00", "as: must be at most 200 characters, without NUL"),
        ("DELETE /v1/exceptions?rule=*&key=1&as=a&as=b", "as: is given twice"),
    ] {
        let body = if request.starts_with("PUT") { r#"{"key": "1", "kind": "block"}"# } else { "" };
        let reply = gate.ask(request, "", body).await;
        assert!(reply.problem(400).starts_with(detail), "{request}: {}", reply.body);
    }
    assert_eq!(gate.get("/v1/actions").await.json()["actions"], json!([]), "a refused action was not done");
}
