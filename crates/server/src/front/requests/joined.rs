//! A connection whose answers are written as one piece.
//!
//! Answers of the API are small. Copying one behind its head costs less than handing the kernel a list of pieces, and h2 writes
//! a message of more than 256 bytes apart from its head if the connection says that it takes such lists.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that does not offer vectored writes.
#[derive(Debug)]
pub(super) struct Joined<S>(pub(super) S);

impl<S: AsyncRead + Unpin> AsyncRead for Joined<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

/// Vectored writes are left to their defaults, which do without.
impl<S: AsyncWrite + Unpin> AsyncWrite for Joined<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
