//! A client of Envoy's rate limit service. Its messages are the service's own; `grpc/messages.rs` checks them against
//! Envoy's descriptors.

#[path = "../src/front/grpc/envoy.rs"]
#[allow(dead_code)]
mod messages;

#[allow(unused_imports)]
pub(crate) use messages::*;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{IntoRequest, Response, Status};
use tonic_prost::ProstCodec;

#[derive(Clone)]
pub(crate) struct RateLimitServiceClient(Grpc<Channel>);

impl RateLimitServiceClient {
    pub(crate) fn new(channel: Channel) -> RateLimitServiceClient {
        RateLimitServiceClient(Grpc::new(channel))
    }

    /// Without TLS.
    #[allow(dead_code)]
    pub(crate) async fn connect(address: &str) -> RateLimitServiceClient {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        RateLimitServiceClient::new(endpoint.connect().await.expect("connected"))
    }

    /// The same, compressing what it sends and accepting compressed answers.
    #[allow(dead_code)]
    pub(crate) fn compressed(self, encoding: CompressionEncoding) -> RateLimitServiceClient {
        RateLimitServiceClient(self.0.send_compressed(encoding).accept_compressed(encoding))
    }

    pub(crate) async fn should_rate_limit(
        &mut self,
        request: impl IntoRequest<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let method = PathAndQuery::try_from(format!("/{METHOD}")).expect("a path");
        self.0.unary(request.into_request(), method, ProstCodec::default()).await
    }
}
