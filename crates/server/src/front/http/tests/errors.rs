use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tower::ServiceExt as _;

use super::*;

#[tokio::test]
async fn a_path_that_is_not_there_is_404_with_a_hint() {
    let gate = Plan::new([]).open().await;
    assert_eq!(gate.get("/v1/chek").await.problem(404), "there is nothing at \"/v1/chek\"; did you mean /v1/check?");
    let far = gate.get("/wp-login.php?x=1").await;
    assert_eq!(far.problem(404), "there is nothing at \"/wp-login.php\"; GET /openapi.json lists the routes");
    // Cutting a path short must not split a character.
    gate.get(&format!("/{}é", "a".repeat(38))).await.problem(404);
}

#[tokio::test]
async fn a_method_that_is_not_taken_is_405_with_those_that_are() {
    let gate = Plan::new([]).open().await;
    let cases = [
        ("GET /v1/check", "POST"),
        ("OPTIONS /v1/check", "POST"),
        ("POST /v1/keys", "GET,HEAD,DELETE"),
        ("PUT /metrics", "GET,HEAD"),
        ("PURGE /healthz", "GET,HEAD"),
    ];
    for (request, allowed) in cases {
        let reply = gate.ask(request, "", "").await;
        reply.problem(405);
        assert_eq!(reply.header("allow"), allowed, "{request}");
    }
}

/// Paths come from one table; the methods of a path are written both in the router and in the description.
#[tokio::test]
async fn every_route_takes_the_methods_that_are_described() {
    let gate = Plan::new([]).open().await;
    let document = gate.get("/openapi.json").await.json();
    for route in Route::ALL.iter().filter(|route| **route != Route::Authorize) {
        let described = document["paths"][route.name()].as_object().expect("described").keys();
        let mut described: BTreeSet<String> = described.map(|method| method.to_uppercase()).collect();
        if described.contains("GET") {
            described.insert("HEAD".into());
        }
        let reply = gate.ask(&format!("PURGE {}", route.name().replace(['{', '}'], "")), "", "").await;
        reply.problem(405);
        let allowed: BTreeSet<String> = reply.header("allow").split(',').map(str::to_string).collect();
        assert_eq!(allowed, described, "{route:?}");
    }
}

/// axum's own refusals are plain text, and were sent when a path was not UTF-8.
#[tokio::test]
async fn a_path_that_is_not_utf_8_is_a_problem_too() {
    let gate = Plan::new([]).open().await;
    let reply = gate.ask("POST /v1/reservations/%FF/settle", "", "{}").await;
    assert_eq!(reply.problem(400), "id: is not UTF-8; percent-encode it as UTF-8");
}

#[tokio::test]
async fn lists_that_take_no_parameters_refuse_them() {
    let gate = Plan::new([]).open().await;
    for path in ["/v1/rules", "/v1/exceptions", "/v1/insight"] {
        let reply = gate.get(&format!("{path}?rule=a")).await;
        assert_eq!(reply.problem(400), "rule: is not known; nothing can be given here", "{path}");
    }
}

#[tokio::test]
async fn a_mistake_names_its_field() {
    let gate = Plan::new([]).open().await;
    let reply = gate.ask("POST /v1/check", "", r#"{"checks": [{}, {"cost": -1}]}"#).await;
    assert!(reply.problem(400).starts_with("checks[1].cost: must be a whole number"));
    assert_eq!(reply.json()["field"], "checks[1].cost");
    gate.ask("POST /v1/check", "", "").await.problem(400);
    gate.ask("POST /v1/check", "", b"{\"attributes\": {\"a\": \"\xff\"}}").await.problem(400);
}

#[tokio::test]
async fn a_body_past_64_kib_is_refused_and_one_of_64_kib_is_not() {
    let gate = Plan::new([]).open().await;
    let body = |size: usize| {
        let frame = r#"{"attributes": {"a": ""}}"#;
        format!(r#"{{"attributes": {{"a": "{}"}}}}"#, "x".repeat(size - frame.len()))
    };
    assert_eq!(gate.ask("POST /v1/check", "", body(64 * 1024)).await.status, 200);
    for size in [64 * 1024 + 1, 1_000_000] {
        gate.ask("POST /v1/check", "", body(size)).await.problem(413);
    }
}

#[tokio::test]
async fn a_body_that_does_not_say_how_long_it_is_has_the_same_limit() {
    let gate = Plan::new([]).open().await;
    let mut stream = gate.connect().await;
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}{chunk}{chunk}{chunk}0\r\n\r\n").as_bytes()).await.expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("an answer");
    Reply::parse(&bytes).0.problem(413);
}

#[tokio::test]
async fn who_asks_before_sending_too_much_is_answered_at_once() {
    let gate = Plan::new([]).open().await;
    let headers = "expect: 100-continue\r\ncontent-length: 70000\r\n";
    gate.ask("POST /v1/check", headers, "").await.problem(413);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_408() {
    let gate = Plan::new([]).limits(|limits| limits.request = Duration::from_millis(50)).open().await;
    let reply = gate.ask("POST /v1/check", "content-length: 20\r\n", "").await;
    assert_eq!(reply.problem(408), "the body did not arrive within 50ms; send it faster");
    assert_eq!(reply.header("connection"), "close");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let gate = Plan::new([]).open().await;
    let reply = gate.ask("GET /healthz", &format!("x-long: {}\r\n", "x".repeat(70_000)), "").await;
    assert_eq!(reply.status, 431);
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    assert_eq!(gate.ask("GET /healthz", &many, "").await.status, 431);
}

#[tokio::test]
async fn a_handler_that_panics_is_one_500_and_nothing_else() {
    async fn handler() {
        panic!("a bug, made for this test");
    }
    let router: Router = Router::new().route("/", get(handler)).layer(from_fn(observe::survive));
    for _ in 0..2 {
        let request = http::Request::get("/").body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
}
