//! The body of a request, on its way to the upstream.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::paced::{Error, Paced, Piece};
use crate::front::body::discard;
use crate::front::connections::{InFlight, Stopping};

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

/// How far a client's body is, as others see it.
#[derive(Debug)]
pub(super) struct UploadState {
    began: Instant,
    moved_ms: AtomicU64,
    has_ended: AtomicBool,
    failure: OnceLock<UploadFailure>,
}

impl UploadState {
    fn new() -> UploadState {
        let (moved_ms, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
        UploadState { began: Instant::now(), moved_ms, has_ended, failure: OnceLock::new() }
    }

    /// When the upstream last took a piece.
    pub(super) fn moved(&self) -> Instant {
        self.began + Duration::from_millis(self.moved_ms.load(Relaxed))
    }

    /// Whether the upstream has taken all of it.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    pub(super) fn failure(&self) -> Option<UploadFailure> {
        self.failure.get().copied()
    }
}

/// The body of a request. Boxed, because most have none, and requests are moved.
#[derive(Debug)]
pub(super) struct Upload(Option<Box<Sending>>);

#[derive(Debug)]
struct Sending {
    body: Paced,
    pace: Pace,
    received: u64,
    /// How long the client has been waited for, and since when it is being waited for now.
    waited: Duration,
    waiting: Option<Instant>,
    state: Arc<UploadState>,
    /// It occupies a connection to the upstream, even if the response has ended.
    _in_flight: Arc<InFlight>,
}

impl Upload {
    pub(super) fn new(
        body: Incoming,
        idle: Duration,
        pace: Pace,
        stopping: &Stopping,
        in_flight: &Arc<InFlight>,
    ) -> Upload {
        if body.is_end_stream() {
            return Upload::empty();
        }
        let body = Paced::new(body, idle).hurrying(stopping.clone());
        let (waited, waiting, state) = (Duration::ZERO, None, Arc::new(UploadState::new()));
        Upload(Some(Box::new(Sending {
            body,
            pace,
            received: 0,
            waited,
            waiting,
            state,
            _in_flight: in_flight.clone(),
        })))
    }

    pub(super) fn empty() -> Upload {
        Upload(None)
    }

    /// `None` if there is no body.
    pub(super) fn state(&self) -> Option<Arc<UploadState>> {
        self.0.as_ref().map(|sending| sending.state.clone())
    }
}

/// If the upstream takes no more of it, the rest is read and discarded, within bounds: a client that is cut off while it sends may
/// never see the response. One that has sent nothing may wait for `100 Continue`.
impl Drop for Upload {
    fn drop(&mut self) {
        let Some(sending) = self.0.take() else { return };
        let Sending { body, received, state, .. } = *sending;
        let is_needed = received > 0 && !state.has_ended() && state.failure().is_none();
        if is_needed && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(discard(body.body));
        }
    }
}

impl Sending {
    /// Counts a piece that has arrived; false when it is too late.
    fn is_in_time(&mut self, piece: &Frame<Bytes>) -> bool {
        self.waited += self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.received += piece.data_ref().map_or(0, |data| data.len() as u64);
        self.pace.is_kept(self.received, self.waited)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Piece {
        let piece = self.body.poll_frame(cx);
        match &piece {
            Poll::Pending => _ = self.waiting.get_or_insert_with(Instant::now),
            Poll::Ready(Some(Ok(frame))) if !self.is_in_time(frame) => {
                let _ = self.state.failure.set(UploadFailure::Slow(self.pace));
                return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
            }
            Poll::Ready(Some(Err(error))) => {
                let stalled = error.is::<io::Error>();
                let failure = if stalled { UploadFailure::Stalled(self.body.limit) } else { UploadFailure::Broken };
                let _ = self.state.failure.set(failure);
            }
            Poll::Ready(_) => {
                let since = self.state.began.elapsed().as_millis();
                self.state.moved_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Relaxed);
                if matches!(piece, Poll::Ready(None)) || self.body.body.is_end_stream() {
                    self.state.has_ended.store(true, Relaxed);
                }
            }
        }
        piece
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let Some(sending) = &mut self.0 else { return Poll::Ready(None) };
        loop {
            let piece = sending.poll_frame(cx);
            // Trailers are not passed on.
            if !matches!(&piece, Poll::Ready(Some(Ok(frame))) if frame.is_trailers()) {
                return piece;
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|sending| sending.body.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |sending| sending.body.body.size_hint())
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
