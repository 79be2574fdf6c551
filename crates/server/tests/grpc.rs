//! Envoy's rate limit service as a client sees it: the real binary, and a gRPC client.

mod decisions;
mod messages;
mod operation;

use tollkeeper_testkit::Service;
use tonic::Status;
use tonic::transport::Channel;

use crate::envoy_client::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse,
    RateLimitServiceClient, RateLimitUnit,
};

/// A service and a client of it.
struct Gate {
    service: Service,
    client: RateLimitServiceClient,
}

impl Gate {
    async fn on(rules: &str) -> Gate {
        Gate::of(Service::on(rules, &[])).await
    }

    async fn of(service: Service) -> Gate {
        let client = RateLimitServiceClient::connect(service.grpc.as_ref().expect("gRPC is served")).await;
        Gate { service, client }
    }

    async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        Ok(self.client.clone().should_rate_limit(request).await?.into_inner())
    }

    /// The overall code, then each descriptor's code and remaining count.
    async fn codes(&self, descriptors: &[RateLimitDescriptor]) -> (Code, Vec<(Code, u32)>) {
        let answer = self.ask(request(descriptors)).await.unwrap();
        let statuses = answer.statuses.iter().map(|status| (status.code(), status.limit_remaining)).collect();
        (answer.overall_code(), statuses)
    }

    async fn status(&self, descriptor: RateLimitDescriptor) -> DescriptorStatus {
        self.ask(request(&[descriptor])).await.unwrap().statuses.remove(0)
    }
}

async fn channel(service: &Service) -> Channel {
    let address = service.grpc.as_ref().expect("gRPC is served");
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

fn request(descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".into(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: key.to_string(), value: value.to_string() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

fn user(name: &str) -> RateLimitDescriptor {
    descriptor(&[("user", name)])
}

fn with_hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

fn refunded(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..with_hits(descriptor, hits) }
}

fn with_limit(descriptor: RateLimitDescriptor, requests_per_unit: u32, unit: RateLimitUnit) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit: unit.into() }), ..descriptor }
}
