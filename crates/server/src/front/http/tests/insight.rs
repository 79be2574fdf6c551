use super::*;

async fn deny(gate: &Gate, user: &str, ip: &str, times: usize) {
    for _ in 0..times {
        let attributes = json!({"user_id": user, "ip": ip, "method": "POST", "path": "/orders"});
        gate.check(json!({"attributes": attributes, "cost": 3})).await;
    }
}

#[tokio::test]
async fn who_was_denied_can_be_asked_by_user_address_rule_and_time() {
    let gate = Plan::new([per_user()]).open().await;
    deny(&gate, "42", "203.0.113.9", 3).await;
    gate.clock.advance(Span::from_secs(60));
    deny(&gate, "43", "198.51.100.7", 2).await;
    let all = gate.get("/v1/violations").await.json();
    assert_eq!((&all["source"], &all["dropped"], all.get("next")), (&json!("memory"), &json!(0), None));
    let newest = &all["violations"][0];
    let expected = json!({
        "id": 3, "at": "2026-01-01T00:01:00.000Z", "rule": "per-user", "key": "43", "user_id": "43", "ip": "198.51.100.7",
        "endpoint": "POST /orders", "cost": 3, "remaining": 0, "retry_after_ms": 1_500, "count": 1, "shadow": false,
        "mode": "enforce", "blocked": null, "instance": newest["instance"],
    });
    assert_eq!(newest, &expected);
    let users = async |query: &str| {
        let found = gate.get(&format!("/v1/violations?{query}")).await.json();
        let users = found["violations"].as_array().expect("a list").iter().map(|one| one["user_id"].to_string());
        users.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(users("").await, r#""43" "42" "42""#);
    assert_eq!(users("user_id=42").await, r#""42" "42""#);
    assert_eq!(users("ip=198.51.100.0/24").await, r#""43""#);
    assert_eq!(users("rule=per-user&since=30s").await, r#""43""#);
    assert_eq!(users("until=2026-01-01T00:00:30Z").await, r#""42" "42""#);
    assert_eq!(users("rule=other").await, "");
    let first = gate.get("/v1/violations?limit=2").await.json();
    let next = first["next"].as_str().expect("there is more");
    assert_eq!(users(&format!("limit=2&cursor={next}")).await, r#""42""#);
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_400_and_names_the_field() {
    let gate = Plan::new([per_user()]).open().await;
    for (path, detail) in [
        ("/v1/violations?ip=here", "ip: \"here\" is not an address or a network"),
        ("/v1/violations?usr_id=1", "usr_id: is not known; did you mean `user_id`?"),
        ("/v1/violations?limit=5000", "limit: must be a whole number from 1 to 1000, not 5000"),
        ("/v1/violations?since=then", "since: \"then\" is not a time; use 1h"),
        ("/v1/insight?rule=a", "rule: is not known; nothing can be given here"),
    ] {
        let reply = gate.get(path).await;
        assert!(reply.problem(400).starts_with(detail), "{path}: {}", reply.body);
        assert_eq!(reply.json()["field"].as_str(), detail.split(':').next(), "{path}");
    }
}

#[tokio::test]
async fn insight_shows_of_rules_keys_the_store_and_what_was_found() {
    let gate = Plan::new([per_user()]).open().await;
    deny(&gate, "42", "203.0.113.9", 40).await;
    gate.clock.advance(Span::from_secs(2));
    let report = gate.get("/v1/insight").await.json();
    let rule = &report["rules"][0];
    assert_eq!((&rule["name"], &rule["scope"], &rule["mode"]), (&json!("per-user"), &json!("user"), &json!("enforce")));
    assert_eq!((&rule["limit"], &rule["denied"]), (&json!("2/s burst 3 token_bucket"), &json!(39)));
    assert_eq!(rule["hot_by_denials"][0]["key"], "42");
    assert_eq!(rule["seconds"]["denied"].as_array().map(Vec::len), Some(1), "nothing was read before now");
    assert_eq!(rule["finding"]["evidence"]["denied"], 39);
    assert_eq!((&report["store"]["kind"], &report["store"]["breaker"]), (&json!("memory"), &json!("closed")));
    assert_eq!((&report["uptime_seconds"], &report["rules_loaded"]), (&json!(2), &json!(1)));
    assert_eq!(report["violations"][0]["count"], 34, "one stands for the rest");
    assert_eq!(report["dropped"], json!({"decisions": 0, "violations": 0}));
    let metrics = gate.get("/metrics").await.body;
    for line in
        ["tollkeeper_violations_dropped_total 0", "tollkeeper_observations_dropped_total 0", "tollkeeper_audit_queue 0"]
    {
        assert!(metrics.lines().any(|one| one == line), "{line}");
    }
}
