use super::*;

#[tokio::test]
async fn a_bucket_is_shown_untouched_and_forgotten_on_request() {
    let gate = Plan::new([per_user()]).open().await;
    gate.check(json!({"attributes": {"user_id": "a&b 42"}, "cost": 2})).await;
    let path = "/v1/keys?rule=per-user&key=a%26b+42";
    for _ in 0..2 {
        let bucket = gate.get(path).await.json();
        assert_eq!(
            (&bucket["rule"], &bucket["scope"], &bucket["key"]),
            (&json!("per-user"), &json!("user"), &json!("a&b 42"))
        );
        assert_eq!((&bucket["limit"], &bucket["remaining"]), (&json!(3), &json!(1)));
        assert_eq!((&bucket["algorithm"], &bucket["reset_after_ms"]), (&json!("token_bucket"), &json!(1_000)));
        assert_eq!(bucket.get("variants"), None);
    }
    let reset = async || gate.ask(&format!("DELETE {path}"), "", "").await.json();
    assert_eq!(reset().await, json!({"reset": true}));
    assert_eq!(reset().await, json!({"reset": false}));
    assert_eq!(gate.get(path).await.json()["remaining"], 3);
}

#[tokio::test]
async fn of_several_buckets_with_one_text_the_most_used_is_shown() {
    let either = json!({"name": "either", "key": "{api_key|ip}", "limit": "9/h"});
    let gate = Plan::new([either]).open().await;
    let path = "/v1/keys?rule=either&key=10.0.0.1";
    gate.check(json!({"attributes": {"ip": "10.0.0.1"}, "cost": 4})).await;
    let one = gate.get(path).await.json();
    assert_eq!((&one["remaining"], one.get("variants")), (&json!(5), None));
    gate.check(json!({"attributes": {"api_key": "10.0.0.1"}, "cost": 1})).await;
    let both = gate.get(path).await.json();
    assert_eq!(both["remaining"], 5);
    let levels: Vec<_> =
        both["variants"].as_array().expect("variants").iter().map(|v| (&v["variant"], &v["remaining"])).collect();
    assert_eq!(levels, [(&json!(0), &json!(8)), (&json!(1), &json!(5))]);
}

#[tokio::test]
async fn a_bucket_has_to_be_named_well() {
    let gate = Plan::new([per_user()]).open().await;
    let cases = [
        ("/v1/keys", 400, "rule: is missing"),
        ("/v1/keys?rule=per-user", 400, "key: is missing"),
        ("/v1/keys?rule=per-user&key=", 400, "key: is empty"),
        ("/v1/keys?rule=per-user&key=1&key=2", 400, "key: is given twice"),
        ("/v1/keys?rule=per-user&kay=1", 400, "kay: is not known; did you mean `key`?"),
        ("/v1/keys?rule=per-uesr&key=1", 404, "rule: there is none named \"per-uesr\"; did you mean `per-user`?"),
    ];
    for (path, status, detail) in cases {
        for method in ["GET", "DELETE"] {
            let reply = gate.ask(&format!("{method} {path}"), "", "").await;
            assert!(reply.problem(status).starts_with(detail), "{method} {path}: {}", reply.body);
        }
    }
}

#[tokio::test]
async fn rules_are_listed_as_written() {
    let gate = Plan::new([per_user(), per_ip()]).open().await;
    let rules = gate.get("/v1/rules").await.json();
    assert_eq!(rules["rules"][0]["limit"], "2/s");
    assert_eq!(rules["rules"][0]["quota"], "2/s burst 3 token_bucket");
    assert_eq!(rules["rules"][1]["name"], "per-ip");
}

#[tokio::test]
async fn the_front_page_runs_only_what_is_its_own_and_holds_no_data() {
    let odd = json!({"name": "odd", "key": "all", "limit": "1/s", "description": "\"><script>alert(1)</script>"});
    let gate = Plan::new([per_user(), odd]).open().await;
    let page = gate.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    for part in ["/openapi.json", "/metrics", "/v1/insight"] {
        assert!(page.body.contains(part), "{part}");
    }
    assert!(!page.body.contains("per-user") && !page.body.contains("alert("));
    let policy = page.header("content-security-policy");
    for part in ["default-src 'none'", "script-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
}

/// Ten requests, nine of them denied, under five rules of which one is in shadow mode. They were counted as 50 decisions, 18 of
/// them denied, and shown as "36 % denied".
#[tokio::test]
async fn a_request_is_counted_once_whatever_the_number_of_its_rules() {
    let rule =
        |name: &str, limit: &str, mode: &str| json!({"name": name, "key": "{user_id}", "limit": limit, "mode": mode});
    let wide = ["b", "c", "d"].map(|name| rule(name, "1000/day", "enforce"));
    let narrow = [rule("a", "1/day", "enforce"), rule("e", "1/day", "shadow")];
    let gate = Plan::new(narrow.into_iter().chain(wide)).open().await;
    for _ in 0..10 {
        gate.check(json!({"attributes": {"user_id": "42"}})).await;
    }
    let metrics = gate.get("/metrics").await;
    for line in [
        r#"tollkeeper_requests_total{front="http",outcome="allowed"} 1"#,
        r#"tollkeeper_requests_total{front="http",outcome="denied"} 9"#,
        r#"tollkeeper_requests_total{front="http",outcome="no_rule"} 0"#,
    ] {
        assert!(metrics.body.lines().any(|one| one == line), "{line}\n{}", metrics.body);
    }
}

#[tokio::test]
async fn health_metrics_and_description_are_there() {
    let gate = Plan::new([per_user()]).open().await;
    assert_eq!(gate.get("/healthz").await.json(), json!({"status": "ok"}));
    assert_eq!(gate.get("/readyz").await.json(), json!({"status": "ok"}));
    gate.check(json!({"attributes": {"user_id": "42"}})).await;
    gate.get("/nothing/here").await;
    gate.get("/v1/authorize/some/path").await;
    let metrics = gate.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        r#"tollkeeper_decisions_total{rule="per-user",outcome="allowed",source="store"} 1"#,
        r#"tollkeeper_requests_total{front="http",outcome="allowed"} 1"#,
        r#"tollkeeper_requests_total{front="http",outcome="no_rule"} 1"#,
        r#"tollkeeper_http_requests_total{route="/v1/check",status="200"} 1"#,
        r#"tollkeeper_http_requests_total{route="/v1/authorize",status="200"} 1"#,
        r#"tollkeeper_http_requests_total{route="unknown",status="404"} 1"#,
        r#"tollkeeper_rule_lacking_attribute_total{rule="per-user"} 1"#,
        "tollkeeper_check_duration_seconds_count 2",
    ] {
        assert!(metrics.body.lines().any(|one| one == line), "{line}\n{}", metrics.body);
    }
    let description = gate.get("/openapi.json").await;
    assert_eq!(description.header("content-type"), "application/json");
    assert_eq!(description.json()["openapi"], "3.1.0");
    let head = gate.ask("HEAD /metrics", "", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}
