//! The body of a response for a client of HTTP/2.
//!
//! Such a client decides how much of each response it takes, and the protocol keeps what it leaves. So the request is in flight
//! until the last piece was sent, and a client that takes nothing of a response for too long is cut off.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::download::Download;
use super::paced::{Error, Piece};
use crate::front::connections::{Busy, InFlight, Unread};

/// A response, of which the client has not taken everything yet.
#[derive(Debug)]
pub(super) struct Untaken {
    body: Download,
    /// Of the last piece.
    rest: Bytes,
    kept: Arc<Kept>,
}

/// What the protocol keeps of a response.
#[derive(Debug)]
struct Kept {
    unread: Unread,
    pieces: AtomicUsize,
    /// Whether the upstream is waited for, and not the client.
    awaits_upstream: AtomicBool,
    _in_flight: Arc<InFlight>,
}

/// A piece that the protocol keeps.
struct KeptPiece {
    data: Bytes,
    kept: Arc<Kept>,
}

impl Untaken {
    /// What is handed on at a time: small enough for a slow client to take it in time.
    const PIECE: usize = 16 * 1024;

    pub(super) fn new(body: Download, busy: &Busy, in_flight: Arc<InFlight>) -> Untaken {
        let (pieces, awaits_upstream) = (AtomicUsize::new(0), AtomicBool::new(false));
        let kept = Kept { unread: busy.owe(), pieces, awaits_upstream, _in_flight: in_flight };
        Untaken { body, rest: Bytes::new(), kept: Arc::new(kept) }
    }

    fn next_piece(&mut self) -> Frame<Bytes> {
        let data = self.rest.split_to(self.rest.len().min(Untaken::PIECE));
        self.kept.pieces.fetch_add(1, Relaxed);
        self.kept.awaits_upstream.store(false, Relaxed);
        self.kept.note_progress();
        Frame::data(Bytes::from_owner(KeptPiece { data, kept: self.kept.clone() }))
    }
}

impl Kept {
    /// The client has taken something, or wants more.
    fn note_progress(&self) {
        if self.awaits_upstream.load(Relaxed) && self.pieces.load(Relaxed) == 0 {
            self.unread.pause();
        } else {
            self.unread.was_read();
        }
    }
}

impl AsRef<[u8]> for KeptPiece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for KeptPiece {
    fn drop(&mut self) {
        self.kept.pieces.fetch_sub(1, Relaxed);
        self.kept.note_progress();
    }
}

impl Body for Untaken {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Pending => {
                    self.kept.awaits_upstream.store(true, Relaxed);
                    self.kept.note_progress();
                    return Poll::Pending;
                }
                ended => return ended,
            }
        }
        Poll::Ready(Some(Ok(self.next_piece())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
