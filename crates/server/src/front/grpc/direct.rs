//! The short way of plain calls: one message that is not compressed, without a token or a trace, is read and answered here. What
//! the framework would add costs as much as the decision.
//!
//! Every other call goes through the router, and so does one with a message that cannot be read: both ways give the same answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use bytes::{Buf as _, BufMut as _, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::Either;
use hyper::body::{Frame, Incoming};
use prost::Message as _;
use tonic::Status;
use tower::ServiceExt as _;

use super::decide::decide;
use super::envoy::{PATH, RateLimitRequest, RateLimitResponse};
use crate::front::body::{Arrived, arrived};
use crate::front::connections::{Connected, TOO_MANY_REQUESTS};
use crate::metrics::{Front, Outcome};
use crate::service::Service;
use crate::tokens::{Purpose, Without};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Both ways.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) service: Arc<Service>,
    pub(super) router: Router,
}

impl Calls {
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        from: Arc<Connected>,
    ) -> Response<Either<Unary, Body>> {
        if !self.is_plain(&request) {
            return self.routed(request.map(Body::new), &from).await;
        }
        let (parts, body) = request.into_parts();
        let body = match arrived(body).await {
            Arrived::Whole(body) => body,
            Arrived::InPieces(body) => {
                return self.routed(Request::from_parts(parts, Body::new(body)), &from).await;
            }
        };
        match message(&body) {
            Some(message) => match decide(&self.service, message).await {
                Ok(answer) => response(&answer),
                Err(status) => status.into_http::<Body>().map(Either::Right),
            },
            None => self.routed(Request::from_parts(parts, Body::from(body)), &from).await,
        }
    }

    /// The answer to a client that has too many calls in flight.
    pub(super) fn refuse(&self) -> Response<Either<Unary, Body>> {
        self.service.metrics.count_outcome(Front::Grpc, Outcome::Shed);
        Status::unavailable(TOO_MANY_REQUESTS).into_http::<Body>().map(Either::Right)
    }

    fn is_plain(&self, request: &Request<Incoming>) -> bool {
        let headers = request.headers();
        request.uri().path() == PATH
            && request.method() == Method::POST
            && headers.get(CONTENT_TYPE) == Some(&GRPC)
            && !headers.contains_key(ENCODING)
            && self.service.tokens.without(Purpose::Decide) == Without::Fine
            && !self.service.tracer.is_on()
    }

    async fn routed(&self, mut request: Request<Body>, from: &Connected) -> Response<Either<Unary, Body>> {
        from.attach(&mut request);
        // Boxed, because it is large, and would be moved with every call that takes the other way.
        match Box::pin(self.router.clone().oneshot(request)).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }
}

/// The only message of a body, if it is not compressed and can be read.
fn message(mut body: &[u8]) -> Option<RateLimitRequest> {
    if body.len() < PREFIX || body.get_u8() != 0 {
        return None;
    }
    let length = usize::try_from(body.get_u32()).ok()?;
    (body.len() == length).then(|| RateLimitRequest::decode(body).ok())?
}

fn response(answer: &RateLimitResponse) -> Response<Either<Unary, Body>> {
    let length = answer.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    answer.encode_raw(&mut bytes);
    let mut response = Response::new(Either::Left(Unary { message: Some(bytes.freeze()), is_ended: false }));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// The body of a response: one message, and the status `OK`.
#[derive(Debug)]
pub(super) struct Unary {
    message: Option<Bytes>,
    is_ended: bool,
}

impl hyper::body::Body for Unary {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.is_ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(STATUS, HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}
