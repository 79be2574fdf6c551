use super::*;

#[tokio::test]
async fn a_check_is_decided_and_every_rule_shows_its_part() {
    let gate = Plan::new([per_user()]).open().await;
    let reply = gate.ask("POST /v1/check", "", r#"{"attributes": {"user_id": "42"}}"#).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "no-store");
    let expected = r#"{"allowed":true,"limiting":null,"retry_after_ms":0,"source":"store","rules":[{"rule":"per-user","scope":"user","key":"42","allowed":true,"shadow":false,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":500}]}"#;
    assert_eq!(reply.body, expected);
}

#[tokio::test]
async fn a_denial_is_an_answer_with_the_exact_wait() {
    let gate = Plan::new([per_user()]).open().await;
    let check = json!({"attributes": {"user_id": "42"}, "cost": 3});
    gate.check(check.clone()).await;
    gate.clock.advance(Span::from_micros(1));
    let denied = gate.check(check.clone()).await;
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["limiting"], "per-user");
    assert_eq!(denied["retry_after_ms"], 1_500, "1499.999 ms, rounded up");
    assert_eq!(denied["rules"][0]["remaining"], 0);
    gate.clock.advance(Span::from_micros(1_499_999));
    assert_eq!(gate.check(check).await["allowed"], true);
}

#[tokio::test]
async fn a_request_that_can_never_pass_gets_null() {
    let gate = Plan::new([per_user()]).open().await;
    let denied = gate.check(json!({"attributes": {"user_id": "42"}, "cost": 4})).await;
    assert_eq!((&denied["retry_after_ms"], &denied["rules"][0]["retry_after_ms"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn cost_zero_peeks() {
    let gate = Plan::new([per_user()]).open().await;
    for _ in 0..5 {
        let peeked = gate.check(json!({"attributes": {"user_id": "42"}, "cost": 0})).await;
        assert_eq!(peeked["rules"][0]["remaining"], 3);
    }
}

#[tokio::test]
async fn no_rule_no_limit() {
    let gate = Plan::new([per_user()]).open().await;
    let passed = json!({"allowed": true, "limiting": null, "retry_after_ms": 0, "source": "store", "rules": []});
    assert_eq!(gate.check(json!({})).await, passed);
    assert_eq!(gate.check(json!({"attributes": {"user_id": ""}})).await, passed);
}

#[tokio::test]
async fn each_check_of_a_batch_sees_the_ones_before_it() {
    let gate = Plan::new([per_user()]).open().await;
    let check = json!({"attributes": {"user_id": "42"}});
    let other = json!({"attributes": {"user_id": "43"}, "cost": 2});
    let answer = gate.check(json!({"checks": [check, check, other, check, check]})).await;
    let results = answer["results"].as_array().expect("results");
    let shown: Vec<(bool, u64)> = results
        .iter()
        .map(|one| (one["allowed"] == true, one["rules"][0]["remaining"].as_u64().expect("a number")))
        .collect();
    assert_eq!(shown, [(true, 2), (true, 1), (true, 1), (true, 0), (false, 0)]);
    assert_eq!(gate.check(json!({"checks": []})).await, json!({"results": []}));
}

#[tokio::test]
async fn a_batch_that_is_wrong_anywhere_charges_nothing() {
    let costly = json!({"name": "costly", "key": "all", "limit": "9/s", "cost": "units"});
    let gate = Plan::new([costly]).open().await;
    let body = json!({"checks": [{"attributes": {"units": "5"}}, {"attributes": {"units": "many"}}]});
    let reply = gate.ask("POST /v1/check", "", body.to_string()).await;
    assert!(
        reply.problem(400).starts_with("checks[1].attributes.units: \"many\" is not a whole number"),
        "{}",
        reply.body
    );
    let peeked = gate.check(json!({"cost": 0})).await;
    assert_eq!(peeked["rules"][0]["remaining"], 9);
}

#[tokio::test]
async fn a_queue_shows_when_it_is_ones_turn() {
    let queue = json!({"name": "q", "key": "all", "limit": "4/s", "burst": 3, "algorithm": "leaky_bucket"});
    let gate = Plan::new([queue]).open().await;
    let mut delays = Vec::new();
    for _ in 0..3 {
        delays.push(gate.check(json!({})).await["rules"][0]["delay_ms"].clone());
    }
    assert_eq!(delays, [0, 250, 500]);
}

#[tokio::test]
async fn a_slot_is_held_until_it_is_released() {
    let slots = json!({"name": "slots", "key": "{job|user_id}", "limit": 1, "algorithm": "concurrency", "hold": "10s"});
    let gate = Plan::new([slots]).open().await;
    let check = json!({"attributes": {"user_id": "42"}});
    let taken = gate.check(check.clone()).await;
    let hold = taken["rules"][0]["hold"].as_str().expect("a hold");
    let denied = gate.check(check.clone()).await;
    assert_eq!((&denied["allowed"], &denied["rules"][0]["hold"]), (&json!(false), &Value::Null));

    // A hold was a time and a number: whoever knew rule and key could guess it, and free the slots of others.
    let (name, seal) = hold.rsplit_once('.').expect("a seal");
    let other = if seal.starts_with('0') { "1" } else { "0" };
    for guess in [format!("{name}.{}", "0".repeat(32)), format!("{name}.{other}{}", &seal[1..])] {
        let release = json!({"rule": "slots", "key": "42", "hold": guess}).to_string();
        assert_eq!(gate.ask("POST /v1/release", "", &release).await.json(), json!({"released": false}));
    }
    let unsealed = json!({"rule": "slots", "key": "42", "hold": name}).to_string();
    gate.ask("POST /v1/release", "", &unsealed).await.problem(400);

    let release = json!({"rule": "slots", "key": "42", "hold": hold}).to_string();
    assert_eq!(gate.ask("POST /v1/release", "", &release).await.json(), json!({"released": true}));
    assert_eq!(gate.ask("POST /v1/release", "", &release).await.json(), json!({"released": false}));
    assert_eq!(gate.check(check).await["allowed"], true);
}

#[tokio::test]
async fn a_release_of_nothing_is_refused() {
    let gate = Plan::new([per_user()]).open().await;
    let release = |rule: &str, hold: &str| json!({"rule": rule, "key": "42", "hold": hold}).to_string();
    let unknown = gate.ask("POST /v1/release", "", release("per-usr", &format!("0.1.0.{}", "0".repeat(32)))).await;
    assert_eq!(unknown.problem(404), "rule: there is none named \"per-usr\"; did you mean `per-user`?");
    let bad = gate.ask("POST /v1/release", "", release("per-user", "slot 1")).await;
    assert!(bad.problem(400).starts_with("hold: \"slot 1\" is not a hold"));
    let elsewhere = gate.ask("POST /v1/release", "", release("per-user", &format!("0.1.0.{}", "0".repeat(32)))).await;
    assert_eq!(elsewhere.json(), json!({"released": false}));
}

/// `curl -d` calls everything a form.
#[tokio::test]
async fn the_content_type_does_not_matter() {
    let gate = Plan::new([per_user()]).open().await;
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    assert_eq!(gate.ask("POST /v1/check", form, "{}").await.status, 200);
}

#[tokio::test]
async fn headers_are_those_of_authorize_ready_to_be_sent_on() {
    let gate = Plan::new([per_ip()]).open().await;
    let check = json!({"attributes": {"ip": "127.0.0.1"}, "headers": true});
    let passed = gate.check(check.clone()).await;
    let expected = json!({"ratelimit-policy": "\"per-ip\";q=2;w=3600", "ratelimit": "\"per-ip\";r=1;t=3600"});
    assert_eq!(passed["headers"], expected);
    gate.check(check.clone()).await;
    let (denied, authorized) = (gate.check(check).await, gate.ask("GET /v1/authorize", "", "").await);
    assert_eq!(authorized.status, 429);
    assert_eq!(denied["headers"]["retry-after"], "3600");
    for (name, value) in denied["headers"].as_object().expect("headers") {
        assert_eq!(authorized.header(name), value, "{name}");
    }
    assert_eq!(denied["headers"].as_object().map(|headers| headers.len()), Some(3));
    let plain = gate.check(json!({"attributes": {"ip": "127.0.0.1"}, "headers": false})).await;
    assert!(plain.get("headers").is_none(), "{plain}");
    let nobody = gate.check(json!({"headers": true})).await;
    assert_eq!(nobody["headers"], json!({}), "no rule applies, so there is nothing to tell");
}

#[tokio::test]
async fn only_the_rules_that_were_named_are_considered_and_charged() {
    let gate = Plan::new([per_user(), per_ip()]).open().await;
    let both = json!({"user_id": "42", "ip": "192.0.2.1"});
    let only = json!({"attributes": both, "rules": ["per-ip"], "headers": true});
    let shown = |answer: &Value| -> Vec<(String, u64)> {
        let row =
            |row: &Value| (row["rule"].as_str().unwrap_or_default().into(), row["remaining"].as_u64().unwrap_or(9));
        answer["rules"].as_array().expect("rules").iter().map(row).collect()
    };
    let first = gate.check(only.clone()).await;
    assert_eq!(shown(&first), [("per-ip".into(), 1)]);
    assert_eq!(first["headers"]["ratelimit-policy"], "\"per-ip\";q=2;w=3600");
    let all = gate.check(json!({"attributes": both})).await;
    assert_eq!(shown(&all), [("per-user".into(), 2), ("per-ip".into(), 0)], "the first did not charge per-user");
    let batch = gate.check(json!({"checks": [only, {"attributes": both, "rules": ["per-user"]}]})).await;
    assert_eq!(shown(&batch["results"][0]), [("per-ip".into(), 0)]);
    assert!(batch["results"][0]["headers"]["retry-after"].is_string() && batch["results"][1]["headers"].is_null());
    assert_eq!(shown(&batch["results"][1]), [("per-user".into(), 1)]);
}

#[tokio::test]
async fn a_rule_that_there_is_not_is_refused_before_anything_is_charged() {
    let gate = Plan::new([per_user(), per_ip()]).open().await;
    let unknown =
        gate.ask("POST /v1/check", "", r#"{"attributes": {"user_id": "42"}, "rules": ["per-user", "per-usr"]}"#);
    let said = unknown.await.problem(400);
    assert_eq!(said, "rules[1]: there is no rule named \"per-usr\"; did you mean `per-user`?");
    let batch = r#"{"checks": [{"attributes": {"user_id": "42"}}, {"rules": ["nothing like it"]}]}"#;
    let said = gate.ask("POST /v1/check", "", batch).await.problem(400);
    assert!(
        said.starts_with("checks[1].rules[0]: there is no rule named \"nothing like it\"; GET /v1/rules"),
        "{said}"
    );
    let reserve = gate.ask("POST /v1/reserve", "", r#"{"attributes": {"user_id": "42"}, "rules": ["x"]}"#).await;
    assert!(reserve.problem(400).starts_with("rules[0]: there is no rule named \"x\""));
    let answer = gate.check(json!({"attributes": {"user_id": "42"}})).await;
    assert_eq!(answer["rules"][0]["remaining"], 2, "this is the first that was charged");
}

/// 25 KB of checks were answered with 7 MB: each check by every rule, with its key.
#[tokio::test]
async fn a_batch_whose_answer_would_be_huge_is_refused_before_it_charges() {
    let rules = (0..40).map(|number| json!({"name": format!("rule-{number}"), "key": "{user_id}", "limit": "9/h"}));
    let gate = Plan::new(rules).open().await;
    let batch = |checks: usize| json!({"checks": vec![json!({"attributes": {"user_id": "1"}}); checks]}).to_string();
    assert!(batch(1_000).len() < 40_000);
    let detail = gate.ask("POST /v1/check", "", batch(1_000)).await.problem(413);
    assert!(detail.contains("larger than 2097152 bytes; split the batch"), "{detail}");
    let shown = gate.get("/v1/keys?rule=rule-0&key=1").await.json();
    assert_eq!(shown["remaining"], 9, "nothing was charged");
    let fine = gate.ask("POST /v1/check", "", batch(100)).await;
    assert_eq!(fine.status, 200);
    assert!(fine.body.len() < 2 << 20);
}

#[tokio::test]
async fn a_request_over_a_soft_limit_passes_and_says_by_how_much() {
    let soft = json!({"name": "soft", "key": "{user_id}", "limit": "2/h", "mode": "annotate"});
    let gate = Plan::new([soft]).open().await;
    let check = json!({"attributes": {"user_id": "42"}, "cost": 2});
    assert_eq!(gate.check(check.clone()).await.get("annotations"), None);
    let over = gate.check(check).await;
    assert_eq!((&over["allowed"], &over["limiting"]), (&json!(true), &Value::Null));
    let row = &over["rules"][0];
    assert_eq!((&row["allowed"], &row["shadow"], &row["mode"]), (&json!(false), &json!(false), &json!("annotate")));
    let expected = json!([{"rule": "soft", "limit": 2, "over_by": 2, "retry_after_ms": 3_600_000}]);
    assert_eq!(over["annotations"], expected);
    let metrics = gate.get("/metrics").await.body;
    let counted = |outcome: &str| {
        let line = format!("tollkeeper_decisions_total{{rule=\"soft\",outcome=\"{outcome}\",source=\"store\"}} 1");
        metrics.contains(&line)
    };
    assert!(counted("allowed") && counted("annotated"), "{metrics}");
}

/// An IPv6 client had a bucket for each spelling of its address.
#[tokio::test]
async fn an_address_has_one_bucket_however_it_is_written() {
    let only = json!({"name": "ip", "key": "{ip}", "limit": "9/h", "when": {"ip": ["2001:DB8::1", "192.0.2.7"]}});
    let gate = Plan::new([only]).open().await;
    for (index, ip) in ["2001:db8::1", "2001:DB8:0:0::1", "2001:0db8::0001"].iter().enumerate() {
        let checked = gate.check(json!({"attributes": {"ip": ip}})).await;
        assert_eq!(checked["rules"][0]["key"], "2001:db8::1");
        assert_eq!(checked["rules"][0]["remaining"], 8 - index);
    }
    assert_eq!(gate.check(json!({"attributes": {"ip": "::ffff:192.0.2.7"}})).await["rules"][0]["key"], "192.0.2.7");
}

/// What could not be read, or was refused before it was decided, was in no count; a batch with a bad cost was none.
#[tokio::test]
async fn a_bad_request_is_counted_as_a_request() {
    let units = json!({"name": "units", "key": "{user_id}", "limit": "100/s", "cost": "units"});
    let gate = Plan::new([units]).open().await;
    let bad_cost = r#"{"checks": [{"attributes": {"user_id": "1"}}, {"attributes": {"user_id": "2", "units": "x"}}]}"#;
    for (request, body, requests) in [
        ("POST /v1/check", "{nope", 1),
        ("POST /v1/check", r#"{"attributes": {"user_id": "1"}, "rules": ["other"]}"#, 1),
        ("POST /v1/check", r#"{"attributes": {"user_id": "1", "units": "x"}}"#, 1),
        ("POST /v1/check", bad_cost, 2),
        ("POST /v1/reserve", "[]", 1),
        ("POST /v1/reserve", r#"{"attributes": {"user_id": "1", "units": "x"}, "hold_ms": 1000}"#, 1),
    ] {
        let errors = async || {
            let page = gate.get("/metrics").await.body;
            let line = r#"tollkeeper_requests_total{front="http",outcome="error"} "#;
            page.lines().find_map(|one| one.strip_prefix(line)?.parse::<u64>().ok()).expect("a count")
        };
        let before = errors().await;
        assert_eq!(gate.ask(request, "", body).await.status, 400, "{body}");
        assert_eq!(errors().await - before, requests, "{request} {body}");
    }
    let report = gate.get("/v1/insight").await.json();
    assert_eq!((&report["totals"]["requests"], &report["totals"]["error"]), (&json!(7), &json!(7)));
    assert_eq!(report["totals"]["denied"], 0);
}
