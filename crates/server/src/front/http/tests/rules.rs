use super::*;

#[tokio::test]
async fn rules_of_a_file_are_listed_and_not_changed() {
    let gate = Plan::new([per_user()]).open().await;
    let listed = gate.get("/v1/rules").await;
    assert_eq!((listed.json()["source"].as_str(), listed.header("etag")), (Some("file"), ""));
    let rule = per_user().to_string();
    for (request, body) in [
        ("POST /v1/rules", rule.as_str()),
        ("PUT /v1/rules/per-user", &rule),
        ("DELETE /v1/rules/per-user", ""),
        ("GET /v1/rules/history", ""),
        ("POST /v1/rules/rollback", r#"{"version": 1}"#),
    ] {
        let detail = gate.ask(request, "", body).await.problem(409);
        assert!(detail.contains("come from the configuration file") && detail.contains("rules_from"), "{detail}");
    }
    assert_eq!(gate.get("/v1/rules").await.body, listed.body);
}

#[tokio::test]
async fn with_a_token_only_those_who_send_it_may_try() {
    let gate = Plan::new([per_user()]).open().await;
    for request in
        ["POST /v1/rules", "PUT /v1/rules/a", "DELETE /v1/rules/a", "GET /v1/rules/history", "POST /v1/rules/rollback"]
    {
        gate.send(request, "", "{}").await.problem(401);
        gate.ask(request, "", "{}").await.problem(409);
    }
}

/// Names of rules may contain slashes, and must not inflate metrics.
#[tokio::test]
async fn every_name_is_counted_as_one_route() {
    let gate = Plan::new([]).open().await;
    for name in ["a", "b/c", "d%2Fe"] {
        gate.ask(&format!("DELETE /v1/rules/{name}"), "", "").await.problem(409);
    }
    let page = gate.get("/metrics").await.body;
    assert!(page.contains(r#"tollkeeper_http_requests_total{route="/v1/rules/{name}",status="409"} 3"#), "{page}");
}
