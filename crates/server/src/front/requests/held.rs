//! The body of a response whose request is in flight until the last byte was sent.
//!
//! HTTP/2 clients decide how much of a response they take. What they leave stays in memory here, so it counts.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::front::connections::InFlight;

/// A body, and the request that it answers if that is counted.
#[derive(Debug)]
pub(super) struct Held<B> {
    body: B,
    in_flight: Option<Arc<InFlight>>,
}

impl<B> Held<B> {
    pub(super) fn new(body: B, in_flight: Option<InFlight>) -> Held<B> {
        Held { body, in_flight: in_flight.map(Arc::new) }
    }
}

/// Bytes that wait to be sent. The protocol takes them from the body long before.
struct Unsent {
    data: Bytes,
    _in_flight: Arc<InFlight>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Held<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(in_flight) = &self.in_flight else { return Poll::Ready(frame) };
        let unsent = |data| Bytes::from_owner(Unsent { data, _in_flight: in_flight.clone() });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(unsent))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
