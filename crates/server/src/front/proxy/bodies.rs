//! Streams bodies. Each piece must arrive within a time limit, and the slots of a response are released when it ends.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tollkeeper::Permit;

use super::estimate::Estimate;
use crate::front::connections::{InFlight, Stopping, UnderWay};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Piece = Poll<Option<Result<Frame<Bytes>, Error>>>;

/// A body with a time limit for every piece.
struct Paced {
    body: Incoming,
    limit: Duration,
    /// Created when a piece has to be waited for.
    alarm: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// Fires when the service stops; from then on pieces have less time.
    hurry: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("limit", &self.limit).field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Paced {
    fn new(body: Incoming, limit: Duration) -> Paced {
        Paced { body, limit, alarm: None, waiting: false, hurry: None }
    }

    /// A stalled body must not delay a service that stops.
    fn hurrying(self, mut stopping: Stopping) -> Paced {
        Paced { hurry: Some(Box::pin(async move { stopping.begun().await })), ..self }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Piece {
        if let Poll::Ready(piece) = Pin::new(&mut self.body).poll_frame(cx) {
            self.waiting = false;
            return Poll::Ready(piece.map(|piece| piece.map_err(Error::from)));
        }
        if let Some(hurry) = &mut self.hurry
            && hurry.as_mut().poll(cx).is_ready()
        {
            (self.hurry, self.waiting) = (None, false);
            self.limit = self.limit.min(Stopping::PATIENCE);
        }
        let limit = self.limit;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !self.waiting {
            self.waiting = true;
            alarm.as_mut().reset(Instant::now() + limit);
        }
        alarm.as_mut().poll(cx).map(|()| Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }
}

/// How a client's body failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadFailure {
    /// Nothing arrived for this long.
    Stalled(Duration),
    /// It arrived too slowly, though never stalled.
    Slow(Pace),
    /// It ended early, or its framing is invalid.
    Broken,
}

/// How slowly a client may send. Only the time spent waiting for the client counts: a slow upstream is not its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Bytes per second, on average, after [`Pace::GRACE`].
    pub(crate) rate: u64,
    /// For the whole body.
    pub(crate) longest: Duration,
}

impl Pace {
    /// How long a client may take before the rate counts.
    pub(super) const GRACE: Duration = Duration::from_secs(10);

    fn is_kept(&self, received: u64, waited: Duration) -> bool {
        let due = u128::from(self.rate) * waited.saturating_sub(Pace::GRACE).as_millis() / 1_000;
        waited <= self.longest && u128::from(received) >= due
    }
}

/// The state of a client's body while it is sent to the upstream.
#[derive(Debug)]
pub(super) struct UploadState {
    began: Instant,
    moved_ms: AtomicU64,
    failure: OnceLock<UploadFailure>,
}

impl UploadState {
    /// When the upstream last took a piece.
    pub(super) fn moved(&self) -> Instant {
        self.began + Duration::from_millis(self.moved_ms.load(Relaxed))
    }

    pub(super) fn failure(&self) -> Option<UploadFailure> {
        self.failure.get().copied()
    }
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    /// `None` if there is no body.
    body: Option<Paced>,
    pace: Pace,
    received: u64,
    /// How long the client has been waited for, and since when it is being waited for now.
    waited: Duration,
    waiting: Option<Instant>,
    state: Arc<UploadState>,
}

impl Upload {
    pub(super) fn new(body: Incoming, idle: Duration, pace: Pace, stopping: Stopping) -> Upload {
        let body = (!body.is_end_stream()).then(|| Paced::new(body, idle).hurrying(stopping));
        Upload { body, pace, ..Upload::empty() }
    }

    pub(super) fn empty() -> Upload {
        let (moved_ms, failure) = (AtomicU64::new(0), OnceLock::new());
        let state = Arc::new(UploadState { began: Instant::now(), moved_ms, failure });
        let pace = Pace { rate: 0, longest: Duration::MAX };
        Upload { body: None, pace, received: 0, waited: Duration::ZERO, waiting: None, state }
    }

    /// Counts a piece that has arrived; false when it is too late.
    fn is_in_time(&mut self, piece: &Frame<Bytes>) -> bool {
        self.waited += self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.received += piece.data_ref().map_or(0, |data| data.len() as u64);
        self.pace.is_kept(self.received, self.waited)
    }

    pub(super) fn state(&self) -> Arc<UploadState> {
        self.state.clone()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let (piece, limit) = (body.poll_frame(cx), body.limit);
        match &piece {
            Poll::Pending => _ = self.waiting.get_or_insert_with(Instant::now),
            Poll::Ready(Some(Ok(frame))) if !self.is_in_time(frame) => {
                let _ = self.state.failure.set(UploadFailure::Slow(self.pace));
                return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
            }
            Poll::Ready(Some(Err(error))) => {
                let stalled = error.is::<io::Error>();
                let failure = if stalled { UploadFailure::Stalled(limit) } else { UploadFailure::Broken };
                let _ = self.state.failure.set(failure);
            }
            Poll::Ready(_) => {
                let since = self.state.began.elapsed().as_millis();
                self.state.moved_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Relaxed);
            }
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|paced| paced.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), |paced| paced.body.size_hint())
    }
}

/// The body of a response. Slots of `concurrency` rules are released when it has ended or is dropped.
#[derive(Debug)]
pub(super) struct Download {
    body: Paced,
    occupied: Option<(Permit, (UnderWay, InFlight))>,
    /// The estimate, if the response's head did not settle it and its trailers may.
    estimate: Option<Estimate>,
}

impl Download {
    pub(super) fn new(
        body: Incoming,
        idle: Duration,
        permit: Permit,
        under_way: (UnderWay, InFlight),
        estimate: Option<Estimate>,
    ) -> Download {
        Download { body: Paced::new(body, idle), occupied: Some((permit, under_way)), estimate }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let piece = self.body.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &piece
            && let Some(trailers) = frame.trailers_ref()
        {
            self.estimate = self.estimate.take().and_then(|estimate| estimate.settle_by(trailers));
        }
        if let Poll::Ready(None | Some(Err(_))) = piece {
            // The response has ended, though the server may keep the body for a while.
            self.occupied.take();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_an_average_after_a_while_and_has_an_end() {
        let pace = Pace { rate: 100, longest: Duration::from_secs(60) };
        let kept = |received: u64, seconds: u64| pace.is_kept(received, Duration::from_secs(seconds));
        assert!(kept(0, 10), "time to get going");
        assert!(kept(1_000, 20) && !kept(999, 20));
        assert!(kept(1_000_000, 60) && !kept(1_000_000, 61), "however fast");
        let any = Pace { rate: 0, longest: Duration::MAX };
        assert!(any.is_kept(1, Duration::from_secs(1_000_000)));
    }
}
