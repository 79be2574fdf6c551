//! The body of a response, on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming, SizeHint};
use tollkeeper::Permit;

use super::estimate::Estimate;
use super::paced::{Error, Paced, Piece};
use super::upstream::Taken;
use crate::front::connections::{InFlight, UnderWay};

/// What a request holds until its response has ended.
pub(super) type Occupied = (Permit, UnderWay, InFlight);

/// The body of a response. Slots of `concurrency` rules are released when it has ended or is dropped.
#[derive(Debug)]
pub(super) struct Download {
    body: Paced,
    /// The connection that it comes on; `None` if that runs in a task of its own.
    connection: Option<Taken>,
    occupied: Option<Occupied>,
    /// The estimate, if the response's head did not settle it and its trailers may.
    estimate: Option<Estimate>,
    /// Why it ends early.
    failure: Option<Error>,
}

impl Download {
    pub(super) fn new(
        body: Incoming,
        connection: Option<Taken>,
        idle: Duration,
        occupied: Occupied,
        estimate: Option<Estimate>,
    ) -> Download {
        Download { body: Paced::new(body, idle), connection, occupied: Some(occupied), estimate, failure: None }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let Download { body, connection, occupied, estimate, failure } = &mut *self;
        if let Some(failure) = failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let mut piece = body.poll_arrived(cx);
        // Nobody else reads from the connection.
        if piece.is_pending()
            && let Some(connection) = connection
        {
            connection.work(cx);
            piece = body.poll_arrived(cx);
        }
        if piece.is_pending() {
            piece = body.wait(cx);
        }
        if let Poll::Ready(Some(Ok(frame))) = &piece
            && let Some(trailers) = frame.trailers_ref()
        {
            *estimate = estimate.take().and_then(|estimate| estimate.settle_by(trailers));
        }
        if let Poll::Ready(None | Some(Err(_))) = piece {
            // The response has ended, though the server may keep the body for a while.
            drop((occupied.take(), connection.take()));
        }
        if let Poll::Ready(Some(Err(error))) = piece {
            // The head and what came before may not have been sent yet, and would be lost with the connection.
            *failure = Some(error);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.body.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.body.size_hint()
    }
}
