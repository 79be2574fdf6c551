//! The body of a response to a client of the proxy.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, SizeHint};

use super::download::Download;
use super::paced::{Error, Piece};
use super::untaken::Untaken;

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Reply {
    /// From this proxy.
    Own(Full<Bytes>),
    /// From the upstream.
    Download(Download),
    /// The same, for a client of HTTP/2.
    Untaken(Untaken),
}

impl From<Vec<u8>> for Reply {
    fn from(body: Vec<u8>) -> Reply {
        Reply::Own(Full::from(body))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        match self.get_mut() {
            Reply::Own(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {}))),
                Poll::Pending => Poll::Pending,
            },
            Reply::Download(body) => Pin::new(body).poll_frame(cx),
            Reply::Untaken(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Own(body) => body.is_end_stream(),
            Reply::Download(body) => body.is_end_stream(),
            Reply::Untaken(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Own(body) => body.size_hint(),
            Reply::Download(body) => body.size_hint(),
            Reply::Untaken(body) => body.size_hint(),
        }
    }
}
