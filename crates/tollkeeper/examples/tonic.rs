//! The layer in a tonic server that answers a few calls and then stops. The service is gRPC's health checking.
//!
//! `cargo run -p tollkeeper --example tonic --features tower`

use std::error::Error;

use tokio::net::TcpListener;
use tollkeeper::tower::TollkeeperLayer;
use tollkeeper::{Limiter, MemoryStore, Policy, RuleSpec};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let rule = RuleSpec { name: "per-client".into(), key: "{ip}".into(), limit: "2/min".into(), ..RuleSpec::default() };
    let limiter = Limiter::new(Policy::new([rule]).expect("a valid rule"), MemoryStore::new());
    let layer =
        TollkeeperLayer::new(limiter).peer(|found| found.get::<TcpConnectInfo>()?.remote_addr().map(|peer| peer.ip()));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let mut client = HealthClient::new(Channel::from_shared(format!("http://{address}"))?.connect().await?);
    for _ in 0..3 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(reply) => println!("passes: {:?}", reply.metadata().get("ratelimit")),
            Err(status) => {
                let pushback = status.metadata().get("grpc-retry-pushback-ms");
                println!("{:?}: {} (grpc-retry-pushback-ms {pushback:?})", status.code(), status.message());
            }
        }
    }
    server.abort();
    Ok(())
}
