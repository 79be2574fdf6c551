//! What operators see: an unreachable store, health, reflection, metrics, addresses.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tokio_stream::StreamExt as _;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::*;
use crate::envoy_client::Code::Ok as Passed;
use tollkeeper_testkit::store::{Kind, Server};
use tollkeeper_testkit::tollkeeper;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

#[tokio::test]
async fn a_store_that_is_unreachable_is_an_error_where_the_rule_says_closed() {
    let redis = Server::start(Kind::Redis7);
    let rules = "
rules:
  - { name: strict, key: '{strict}', limit: 10/h, on_store_failure: closed }
  - { name: lenient, key: '{lenient}', limit: 10/h, on_store_failure: open }
  - { name: local, key: '{local}', limit: 1/h }
";
    let gate = Gate::of(Service::on(rules, &["--store", &redis.url()])).await;
    let health = HealthClient::new(channel(&gate.service).await);
    let one = |name: &str| descriptor(&[(name, "x")]);
    assert_eq!(gate.codes(&[one("strict"), one("lenient")]).await, (Passed, vec![(Passed, 9), (Passed, 9)]));
    assert_eq!(served(&health, SERVICE).await, ServingStatus::Serving);
    drop(redis);
    let error = gate.ask(request(&[one("lenient"), one("strict")])).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert!(error.message().contains("rule `strict` fails closed"), "{error}");
    assert_eq!(gate.codes(&[one("lenient")]).await.0, Passed);
    assert_eq!(gate.codes(&[one("local")]).await.0, Passed);
    assert_eq!(gate.codes(&[one("local")]).await.0, Code::OverLimit);
    // The circuit breaker opens after a few failures, and health follows it.
    let deadline = Instant::now() + Duration::from_secs(10);
    while served(&health, SERVICE).await != ServingStatus::NotServing {
        assert!(Instant::now() < deadline, "health does not follow the store");
        gate.codes(&[one("lenient")]).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(served(&health, "").await, ServingStatus::NotServing);
}

#[tokio::test]
async fn in_redis_hits_are_decided_together_and_can_be_refunded() {
    for kind in Kind::ALL {
        let redis = Server::start(kind);
        for algorithm in ["token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"] {
            // A deadline that a busy machine can meet: this test is not about slowness.
            let rules = format!(
                "store: {{ url: '{}', timeout: 5s }}\nrules: [{{ name: {algorithm}, key: '{{user}}', limit: 10/day, algorithm: {algorithm} }}]",
                redis.url()
            );
            let gate = Gate::of(Service::on(&rules, &[])).await;
            let both = [with_hits(user("ann"), 4), with_hits(user("ann"), 4)];
            assert_eq!(gate.codes(&both).await.1, [(Passed, 2), (Passed, 2)], "{kind:?} {algorithm}");
            assert_eq!(gate.codes(&both).await.0, Code::OverLimit, "{kind:?} {algorithm}");
            assert_eq!(gate.status(refunded(user("ann"), 5)).await.limit_remaining, 7, "{kind:?} {algorithm}");
            assert_eq!(gate.status(refunded(user("ann"), 500)).await.limit_remaining, 10, "{kind:?} {algorithm}");
        }
    }
}

async fn served(health: &HealthClient<Channel>, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.into() };
    health.clone().check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn whoever_watches_health_does_not_keep_the_service_from_stopping() {
    let service = Service::on("rules: []", &[]);
    let mut health = HealthClient::new(channel(&service).await);
    assert_eq!(served(&health, "").await, ServingStatus::Serving);
    let unknown = HealthCheckRequest { service: "no.such.Service".into() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), tonic::Code::NotFound);
    let mut watched = health.watch(HealthCheckRequest { service: SERVICE.into() }).await.unwrap().into_inner();
    assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let begun = Instant::now();
    let stopped = tokio::task::spawn_blocking(|| service.stop());
    while watched.next().await.is_some_and(|status| status.is_ok()) {}
    assert_eq!(stopped.await.unwrap(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn reflection_lists_the_services_and_describes_them() {
    let service = Service::on("rules: []", &[]);
    let mut reflection = ServerReflectionClient::new(channel(&service).await);
    let questions = [MessageRequest::ListServices(String::new()), MessageRequest::FileContainingSymbol(SERVICE.into())]
        .map(|message| ServerReflectionRequest { host: String::new(), message_request: Some(message) });
    let answers = reflection.server_reflection_info(tokio_stream::iter(questions)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    let [MessageResponse::ListServicesResponse(services), MessageResponse::FileDescriptorResponse(files)] =
        &answers[..]
    else {
        panic!("{answers:?}")
    };
    let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    for name in [SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let file = String::from_utf8_lossy(&files.file_descriptor_proto[0]);
    assert!(file.contains("envoy/service/ratelimit/v3/rls.proto") && file.contains("ShouldRateLimit"));
}

#[tokio::test]
async fn decisions_are_counted_by_rule() {
    let gate = Gate::on("rules: [{ name: r, key: '{user}', limit: 1/h }]").await;
    gate.codes(&[user("ann"), user("bob")]).await;
    gate.codes(&[with_limit(user("ann"), 1, RateLimitUnit::Hour)]).await;
    let metrics = gate.service.get("/metrics");
    let count = |outcome: &str| {
        let series = format!("tollkeeper_decisions_total{{rule=\"r\",outcome=\"{outcome}\",source=\"store\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or_else(|| panic!("{metrics}")).to_string()
    };
    assert_eq!((count("allowed"), count("denied")), ("2".into(), "1".into()));
}

#[test]
fn an_address_that_was_given_must_be_free_and_one_of_the_default_need_not() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = tollkeeper(&["serve", "--http", "127.0.0.1:0", "--grpc", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(text.contains(&format!("listen.grpc: cannot listen on {address}")), "{text}");
    assert!(text.contains("choose another address with --grpc"), "{text}");
    let output = tollkeeper(&["serve", "--grpc", "8081"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("listen.grpc: \"8081\" is not an address"));
    // The default configuration starts whether port 8081 is free or not.
    let _taken = TcpListener::bind("127.0.0.1:8081");
    let service = Service::start(&["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    assert!(service.get("/healthz").starts_with("HTTP/1.1 200"));
}

/// Descriptors of one call describe one request: client attributes in one appear in the denial of another.
#[tokio::test]
async fn who_was_denied_is_in_the_audit_with_all_that_the_call_contains() {
    let gate = Gate::of(Service::on("rules: [{ name: per-user, key: '{user_id}', limit: 1/h }]", &[])).await;
    let call = [descriptor(&[("remote_address", "203.0.113.9")]), descriptor(&[("user_id", "ann")])];
    assert_eq!(gate.codes(&call).await.0, Passed);
    assert_eq!(gate.codes(&call).await.0, Code::OverLimit);
    let audit = gate.service.get("/v1/violations?user_id=ann&ip=203.0.113.9&rule=per-user");
    assert!(audit.contains(r#""key":"ann","user_id":"ann","ip":"203.0.113.9","endpoint":null"#), "{audit}");
}

/// Clients that compress were answered `Unimplemented`, and a message that is too large `OutOfRange`.
#[tokio::test]
async fn messages_may_be_compressed_and_large_ones_are_refused_as_usual() {
    use tonic::codec::CompressionEncoding::Gzip;
    let gate = Gate::on("rules: [{ name: r, key: '{user}', limit: 2/h }]").await;
    let client = gate.client.clone().compressed(Gzip);
    let ask = async |request| client.clone().should_rate_limit(request).await;
    let answer = ask(request(&[user("ann")])).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
    assert_eq!(answer.into_inner().statuses[0].limit_remaining, 1);
    // 100 KB, and a few hundred bytes when compressed.
    let large = || request(&[user(&"a".repeat(100_000))]);
    assert_eq!(ask(large()).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert_eq!(gate.ask(large()).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert_eq!(ask(request(&[user("ann")])).await.unwrap().into_inner().statuses[0].limit_remaining, 0);
}

#[tokio::test]
async fn health_can_be_listed() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Listed {
        #[prost(map = "string, message", tag = "1")]
        statuses: std::collections::HashMap<String, tonic_health::pb::HealthCheckResponse>,
    }
    let service = Service::on("rules: []", &[]);
    let mut client = tonic::client::Grpc::new(channel(&service).await);
    client.ready().await.unwrap();
    let method = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/List");
    let codec = tonic_prost::ProstCodec::<(), Listed>::default();
    let listed = client.unary(tonic::Request::new(()), method, codec).await.unwrap().into_inner();
    let mut names: Vec<(&str, ServingStatus)> =
        listed.statuses.iter().map(|(name, status)| (name.as_str(), status.status())).collect();
    names.sort_by_key(|(name, _)| *name);
    assert_eq!(names, [("", ServingStatus::Serving), (SERVICE, ServingStatus::Serving)]);
    let mut reflection = ServerReflectionClient::new(channel(&service).await);
    let question = MessageRequest::FileContainingSymbol("grpc.health.v1.HealthListResponse".into());
    let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut answers = reflection.server_reflection_info(tokio_stream::iter([question])).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{answer:?}");
}
