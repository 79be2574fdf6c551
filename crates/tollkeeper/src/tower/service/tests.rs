use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tollkeeper_core::{Algorithm, Policy, RuleSpec};
use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::http::{AnswerStyle, Identity};
use crate::tower::TollkeeperLayer;
use crate::{Limiter, MemoryStore};

fn rule(name: &str, key: &str, limit: &str) -> RuleSpec {
    RuleSpec { name: name.into(), key: key.into(), limit: limit.into(), ..RuleSpec::default() }
}

fn one_at_a_time() -> RuleSpec {
    RuleSpec { algorithm: Algorithm::Concurrency, ..rule("one-at-a-time", "global", "1") }
}

fn limiter(rules: Vec<RuleSpec>) -> Arc<Limiter> {
    Arc::new(Limiter::new(Policy::new(rules).expect("valid rules"), MemoryStore::new()))
}

/// Whether the one slot is free. Peeks without taking it.
async fn is_free(limiter: &Arc<Limiter>) -> bool {
    let bucket = limiter.inspect("one-at-a-time", "global").await.expect("rule").expect("store");
    bucket[0].decision.remaining == 1
}

type Reply = Response<Full<Bytes>>;

async fn hello(_: Request<()>) -> Result<Reply, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

fn get(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).expect("request")
}

#[tokio::test]
async fn slots_are_kept_until_the_body_has_ended() {
    let limiter = limiter(vec![one_at_a_time()]);
    let service = TollkeeperLayer::new(limiter.clone()).layer(service_fn(hello));
    let mut response = service.clone().oneshot(get("/")).await.expect("infallible");
    assert!(!is_free(&limiter).await);
    assert_eq!(service.clone().oneshot(get("/")).await.expect("infallible").status(), StatusCode::TOO_MANY_REQUESTS);

    let body = response.body_mut();
    assert!(body.frame().await.is_some());
    assert!(!is_free(&limiter).await);
    assert!(body.frame().await.is_none());
    assert!(is_free(&limiter).await, "the body is over, though it still exists");
}

#[tokio::test]
async fn a_body_that_nobody_reads_gives_its_slot_back() {
    let limiter = limiter(vec![one_at_a_time()]);
    let response = TollkeeperLayer::new(limiter.clone()).layer(service_fn(hello)).oneshot(get("/")).await;
    assert!(!is_free(&limiter).await);
    drop(response);
    assert!(is_free(&limiter).await);
}

#[tokio::test]
async fn a_body_that_fails_gives_its_slot_back() {
    struct Broken;
    impl Body for Broken {
        type Data = Bytes;
        type Error = &'static str;
        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(Some(Err("broken")))
        }
    }
    let limiter = limiter(vec![one_at_a_time()]);
    let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Broken)) });
    let mut response = TollkeeperLayer::new(limiter.clone()).layer(inner).oneshot(get("/")).await.expect("infallible");
    assert!(response.body_mut().frame().await.is_some_and(|frame| frame.is_err()));
    assert!(is_free(&limiter).await);
}

#[tokio::test]
async fn a_service_that_fails_gives_its_slot_back() {
    let limiter = limiter(vec![one_at_a_time()]);
    let failing = service_fn(|_: Request<()>| async { Err::<Reply, _>("no luck") });
    let failed = TollkeeperLayer::new(limiter.clone()).layer(failing).oneshot(get("/")).await;
    assert_eq!(failed.err(), Some("no luck"));
    assert!(is_free(&limiter).await);
}

#[tokio::test]
async fn a_request_that_is_given_up_gives_its_slot_back() {
    let limiter = limiter(vec![one_at_a_time()]);
    let never = service_fn(|_: Request<()>| std::future::pending::<Result<Reply, Infallible>>());
    let mut call = Box::pin(TollkeeperLayer::new(limiter.clone()).layer(never).oneshot(get("/")));
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_err());
    assert!(!is_free(&limiter).await);
    drop(call);
    assert!(is_free(&limiter).await);
}

/// Checks tower's contract: a service that is called was polled ready before.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Strict::default()
    }
}

impl Service<Request<()>> for Strict {
    type Response = Reply;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test]
async fn only_a_service_that_was_polled_ready_is_called() {
    let mut service = TollkeeperLayer::new(limiter(vec![])).layer(Strict::default());
    for _ in 0..3 {
        service.ready().await.expect("infallible").call(get("/")).await.expect("infallible");
    }
}

#[tokio::test]
async fn a_denied_request_does_not_reach_the_service() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = {
        let calls = calls.clone();
        service_fn(move |request| {
            calls.fetch_add(1, SeqCst);
            hello(request)
        })
    };
    let service = TollkeeperLayer::new(limiter(vec![rule("r", "global", "2/h")])).layer(counting);
    for _ in 0..5 {
        service.clone().oneshot(get("/")).await.expect("infallible");
    }
    assert_eq!(calls.load(SeqCst), 2);
}

#[tokio::test]
async fn waiting_lets_a_burst_through_one_by_one() {
    let limiter = limiter(vec![rule("r", "global", "1/20ms")]);
    let service = TollkeeperLayer::new(limiter).wait_up_to(Duration::from_secs(60)).layer(service_fn(hello));
    for _ in 0..4 {
        assert_eq!(service.clone().oneshot(get("/")).await.expect("infallible").status(), 200);
    }
}

#[tokio::test]
async fn a_wait_that_does_not_fit_is_not_begun() {
    let limiter = limiter(vec![rule("r", "global", "1/h")]);
    let service = TollkeeperLayer::new(limiter).wait_up_to(Duration::from_secs(60)).layer(service_fn(hello));
    assert_eq!(service.clone().oneshot(get("/")).await.expect("infallible").status(), 200);
    assert_eq!(service.clone().oneshot(get("/")).await.expect("infallible").status(), 429);
}

#[tokio::test]
async fn nobody_waits_for_what_can_never_pass() {
    let limiter = limiter(vec![rule("r", "global", "1/ms")]);
    let layer = TollkeeperLayer::new(limiter).cost(|_| 2).wait_up_to(Duration::MAX);
    let response = layer.layer(service_fn(hello)).oneshot(get("/")).await.expect("infallible");
    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn the_application_can_name_attributes_and_costs() {
    let by_user = limiter(vec![rule("by-user", "{user_id}", "4/h")]);
    let layer = TollkeeperLayer::new(by_user.clone())
        .identity(Identity::new().identify("user_id", "header.x-user-id".parse().expect("source")))
        .attribute("user_id", |request| request.extensions.get::<u64>().map(u64::to_string))
        .cost(|request| if request.uri.path() == "/costly" { 4 } else { 1 });
    let service = layer.layer(service_fn(hello));
    let as_user = |user: u64, path: &str| {
        let mut request = get(path);
        request.extensions_mut().insert(user);
        request.headers_mut().insert("x-user-id", "666".parse().expect("value"));
        service.clone().oneshot(request)
    };
    assert_eq!(as_user(1, "/costly").await.expect("infallible").status(), 200);
    assert_eq!(as_user(1, "/").await.expect("infallible").status(), 429);
    assert_eq!(as_user(2, "/").await.expect("infallible").status(), 200);
    let forged = by_user.inspect("by-user", "666").await.expect("rule").expect("store");
    assert_eq!(forged[0].decision.remaining, 4);
}

#[tokio::test]
async fn an_address_among_the_extensions_is_the_peer_by_default() {
    let layer = TollkeeperLayer::new(limiter(vec![rule("by-ip", "{ip}", "1/h")]));
    let from = |address: &str| {
        let mut request = get("/");
        request.extensions_mut().insert(address.parse::<std::net::SocketAddr>().expect("address"));
        layer.layer(service_fn(hello)).oneshot(request)
    };
    assert_eq!(from("203.0.113.7:1").await.expect("infallible").status(), 200);
    assert_eq!(from("203.0.113.7:2").await.expect("infallible").status(), 429);
    assert_eq!(from("203.0.113.8:1").await.expect("infallible").status(), 200);
}

#[tokio::test]
async fn nested_layers_show_all_limits_where_the_style_can() {
    let (outer, inner) = (limiter(vec![rule("outer", "global", "9/h")]), limiter(vec![rule("inner", "global", "5/h")]));
    let nested = |style: HeaderStyle| {
        let style = AnswerStyle { headers: style, ..AnswerStyle::default() };
        let inner = TollkeeperLayer::new(inner.clone()).answer(style.clone()).layer(service_fn(hello));
        TollkeeperLayer::new(outer.clone()).answer(style).layer(inner).oneshot(get("/"))
    };
    let response = nested(HeaderStyle::Draft11).await.expect("infallible");
    let policies: Vec<_> = response.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, [r#""inner";q=5;w=3600"#, r#""outer";q=9;w=3600"#]);
    let response = nested(HeaderStyle::XRateLimitDelta).await.expect("infallible");
    let limits: Vec<_> = response.headers().get_all("x-ratelimit-limit").iter().collect();
    assert_eq!(limits, ["5"]);
}

#[test]
fn futures_can_be_sent_and_services_cloned() {
    fn sendable<T: Send + 'static>(_: T) {}
    let service = TollkeeperLayer::new(limiter(vec![])).layer(service_fn(hello));
    sendable(service.clone());
    sendable(service.clone().call(get("/")));
    assert!(format!("{:?}", TollkeeperLayer::new(limiter(vec![]))).contains("identity"));
}

#[tokio::test]
async fn a_handler_is_told_of_the_soft_limits_that_a_request_is_over() {
    let soft = RuleSpec { mode: tollkeeper_core::Enforcement::Annotate, ..rule("soft", "global", "1/h") };
    let service = TollkeeperLayer::new(limiter(vec![soft])).layer(service_fn(async |request: Request<()>| {
        let over = request.extensions().get::<OverLimit>().map_or(0, |over| over.0[0].over_by);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(over.to_string())))
    }));
    for expected in ["0", "1"] {
        let response = service.clone().oneshot(get("/")).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), expected);
    }
}
