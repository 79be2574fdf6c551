//! A connection of which some bytes were read before.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads these bytes first, then the rest of the connection.
#[derive(Debug)]
pub(in crate::front) struct Rewound<S> {
    stream: S,
    read: BytesMut,
    /// Whether requests of HTTP/1 were answered on it.
    is_http1: bool,
}

impl<S> Rewound<S> {
    /// Nothing was read.
    pub(in crate::front) fn new(stream: S) -> Rewound<S> {
        Rewound { stream, read: BytesMut::new(), is_http1: false }
    }

    pub(super) fn with(stream: S, read: BytesMut, is_http1: bool) -> Rewound<S> {
        Rewound { stream, read, is_http1 }
    }

    /// Whether requests of HTTP/1 were answered on it: it does not become HTTP/2 any more.
    pub(in crate::front) fn is_http1(&self) -> bool {
        self.is_http1
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..length]);
        self.read.advance(length);
        if self.read.is_empty() {
            // Its buffer is not needed any more.
            self.read = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
