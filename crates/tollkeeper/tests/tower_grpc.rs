//! The layer in a real tonic server, asked by a real tonic client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tollkeeper::tower::TollkeeperLayer;
use tollkeeper::{Algorithm, Limiter, MemoryStore, Policy, RuleSpec};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn rule(name: &str, key: &str, limit: &str) -> RuleSpec {
    RuleSpec { name: name.into(), key: key.into(), limit: limit.into(), ..RuleSpec::default() }
}

fn limiter(rules: impl IntoIterator<Item = RuleSpec>) -> Arc<Limiter> {
    Arc::new(Limiter::new(Policy::new(rules).expect("valid rules"), MemoryStore::new()))
}

/// A client of a server that is limited by this layer.
async fn client(layer: TollkeeperLayer) -> HealthClient<Channel> {
    let layer = layer.peer(|found| found.get::<TcpConnectInfo>()?.remote_addr().map(|peer: SocketAddr| peer.ip()));
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("address");
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("address");
    HealthClient::new(endpoint.connect().await.expect("connected"))
}

fn request() -> Request<HealthCheckRequest> {
    Request::new(HealthCheckRequest::default())
}

fn metadata<'s>(status: &'s Status, name: &str) -> Option<&'s str> {
    status.metadata().get(name).map(|value| value.to_str().expect("ASCII"))
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_with_a_retry_after() {
    let mut client = client(TollkeeperLayer::new(limiter([rule("per-client", "{ip}", "1/min")]))).await;
    let reply = client.check(request()).await.expect("the first passes");
    assert_eq!(reply.metadata().get("ratelimit-policy").expect("told"), "\"per-client\";q=1;w=60");

    let status = client.check(request()).await.expect_err("the second does not");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("The limit of rule `per-client` is reached"), "{status}");
    assert_eq!(metadata(&status, "ratelimit-policy"), Some("\"per-client\";q=1;w=60"));
    let seconds: u64 = metadata(&status, "retry-after").expect("told").parse().expect("seconds");
    let pushback_ms: u64 = metadata(&status, "grpc-retry-pushback-ms").expect("told").parse().expect("milliseconds");
    assert_eq!(seconds, pushback_ms.div_ceil(1_000));
    assert!((1..=60).contains(&seconds));
}

#[tokio::test]
async fn the_path_names_the_method() {
    let checks = RuleSpec {
        when: [("path".into(), serde_json::from_str("\"/grpc.health.v1.Health/Check\"").expect("a pattern"))].into(),
        ..rule("checks", "global", "1/h")
    };
    let mut client = client(TollkeeperLayer::new(limiter([checks]))).await;
    assert!(client.check(request()).await.is_ok());
    assert!(client.check(request()).await.is_err());
    assert!(client.watch(request()).await.is_ok());
}

#[tokio::test]
async fn a_cost_that_is_no_number_is_an_invalid_argument() {
    let costly = RuleSpec { cost: "header.x-cost".into(), ..rule("costly", "global", "10/h") };
    let mut client = client(TollkeeperLayer::new(limiter([costly]))).await;
    let mut of_cost = async |cost: &str| {
        let mut request = request();
        request.metadata_mut().insert("x-cost", cost.parse().expect("ASCII"));
        client.check(request).await
    };
    assert_eq!(of_cost("lots").await.expect_err("no number").code(), Code::InvalidArgument);
    let never = of_cost("11").await.expect_err("too much");
    assert_eq!(never.code(), Code::ResourceExhausted);
    assert_eq!(metadata(&never, "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(metadata(&never, "retry-after"), None);
    assert!(of_cost("10").await.is_ok());
}

#[tokio::test]
async fn a_stream_keeps_its_slot_until_it_is_dropped() {
    let limiter = limiter([RuleSpec { algorithm: Algorithm::Concurrency, ..rule("streams", "global", "1") }]);
    let mut client = client(TollkeeperLayer::new(limiter.clone())).await;
    let mut stream = client.watch(request()).await.expect("the first passes").into_inner();
    assert!(stream.message().await.expect("healthy").is_some());
    assert_eq!(client.check(request()).await.expect_err("occupied").code(), Code::ResourceExhausted);
    drop(stream);
    let freed = async {
        while client.check(request()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), freed).await.expect("freed long before the hold expires");
}

#[tokio::test]
async fn a_denied_call_waits_when_that_was_asked_for() {
    let layer = TollkeeperLayer::new(limiter([rule("all", "global", "1/20ms")])).wait_up_to(Duration::from_secs(60));
    let mut client = client(layer).await;
    for _ in 0..4 {
        assert!(client.check(request()).await.is_ok());
    }
}
