//! A body whose pieces must arrive in time.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Instant;

use crate::front::alarm::Alarm;
use crate::front::connections::Stopping;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Piece = Poll<Option<Result<Frame<Bytes>, Error>>>;

/// A body with a time limit for every piece.
pub(super) struct Paced {
    pub(super) body: Incoming,
    pub(super) limit: Duration,
    /// Since when a piece has been waited for.
    since: Option<Instant>,
    alarm: Alarm,
    /// Resolves when the service stops; from then on pieces have less time.
    hurry: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("limit", &self.limit).field("since", &self.since).finish_non_exhaustive()
    }
}

impl Paced {
    pub(super) fn new(body: Incoming, limit: Duration) -> Paced {
        Paced { body, limit, since: None, alarm: Alarm::default(), hurry: None }
    }

    /// A stalled body must not delay a service that stops.
    pub(super) fn hurrying(self, mut stopping: Stopping) -> Paced {
        Paced { hurry: Some(Box::pin(async move { stopping.begun().await })), ..self }
    }

    /// The next piece, or an error if it takes too long.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Piece {
        match self.poll_arrived(cx) {
            Poll::Pending => self.wait(cx),
            piece => piece,
        }
    }

    /// The next piece, if it has arrived. Otherwise [`Paced::wait`] has to be called.
    pub(super) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Piece {
        let piece = Pin::new(&mut self.body).poll_frame(cx);
        if piece.is_ready() {
            self.since = None;
        }
        piece.map(|piece| piece.map(|piece| piece.map_err(Error::from)))
    }

    /// Pending until the piece is late.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>) -> Piece {
        if let Some(hurry) = &mut self.hurry
            && hurry.as_mut().poll(cx).is_ready()
        {
            (self.hurry, self.since) = (None, None);
            self.limit = self.limit.min(Stopping::PATIENCE);
        }
        let due = *self.since.get_or_insert_with(Instant::now) + self.limit;
        self.alarm.poll(due, cx).map(|()| Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }
}
