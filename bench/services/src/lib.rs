//! Envoy's rate limit service, for servers that answer it with tonic: the messages, and what generated code would contain.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// `envoy.service.ratelimit.v3.RateLimitRequest`
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, PartialEq, Message)]
pub struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// An attribute and its value.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`, with its code only.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// 1: OK, 2: over the limit.
    #[prost(int32, tag = "1")]
    pub overall_code: i32,
}

/// The service over a function that decides.
pub struct Service<D>(Arc<D>);

impl<D> Service<D> {
    /// Answers with what `decide` says.
    pub fn new(decide: D) -> Service<D> {
        Service(Arc::new(decide))
    }
}

impl<D> Clone for Service<D> {
    fn clone(&self) -> Self {
        Service(self.0.clone())
    }
}

impl<D> NamedService for Service<D> {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<D, F> UnaryService<RateLimitRequest> for Service<D>
where
    D: Fn(RateLimitRequest) -> F + Send + Sync + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    type Response = RateLimitResponse;
    type Future = Answer<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let allowed = self.0(request.into_inner());
        Box::pin(async { Ok(Response::new(RateLimitResponse { overall_code: if allowed.await { 1 } else { 2 } })) })
    }
}

impl<D, F> tonic::codegen::Service<http::Request<Body>> for Service<D>
where
    D: Fn(RateLimitRequest) -> F + Send + Sync + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<RateLimitResponse, RateLimitRequest>::default();
            Ok(Grpc::new(codec).unary(service, request).await)
        })
    }
}

/// A decision that takes no time.
pub fn always(allowed: bool) -> Ready<bool> {
    ready(allowed)
}
