//! Prevents request smuggling: checks the framing of HTTP/1 requests more strictly than hyper, before hyper reads
//! them.
//!
//! If two parsers of the same bytes disagree about where a request ends, one of them can be made to see a request
//! that the other did not. Hyper reads ambiguous bytes in one of the allowed ways, and forwarded requests are written
//! afresh, so no ambiguity passes through. But a client that sends such bytes is attacking or broken, and gets an
//! error: they are replaced by bytes that hyper is certain to answer with 400 and the end of the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

mod head;

use super::websocket::Sequel;
#[cfg(any(test, fuzzing))]
use crate::front::plain::length_of_plain;
use crate::front::plain::lines::{chunk_size, field};
use crate::metrics::{Front, Metrics};
use head::{Head, Length};

/// The HTTP/2 preface; its framing is unambiguous.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// No method, target, name, value or chunk size may contain the first byte; the others end the head around it.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A connection that only lets well-framed requests through.
pub(super) struct Strict<S> {
    stream: S,
    sequel: Sequel,
    place: Place,
    /// The current line so far.
    line: Vec<u8>,
    /// Where refused requests are counted.
    counted: Option<Arc<Metrics>>,
    /// What is left to deliver in place of the refused bytes.
    poison: Option<&'static [u8]>,
}

/// The parser's state.
enum Place {
    /// This many bytes matched the HTTP/2 preface.
    Beginning(usize),
    Head(Head),
    Body(u64),
    ChunkSize,
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    Trailers,
    /// Not HTTP/1: passed on unchecked.
    Opaque,
}

/// The position of the first refused byte.
#[derive(Debug, PartialEq)]
struct Refused(usize);

impl<S> Strict<S> {
    pub(super) fn new(stream: S, sequel: Sequel) -> Strict<S> {
        Strict { stream, sequel, place: Place::Beginning(0), line: Vec::new(), counted: None, poison: None }
    }

    /// On a connection that has carried requests of HTTP/1: it cannot begin with HTTP/2 any more.
    pub(super) fn after_http1(self) -> Strict<S> {
        Strict { place: Place::Head(Head::default()), ..self }
    }

    /// Counts requests that it refuses.
    pub(super) fn counting(self, metrics: Arc<Metrics>) -> Strict<S> {
        Strict { counted: Some(metrics), ..self }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.place {
                Place::Opaque => return Ok(()),
                Place::Beginning(seen) if bytes[at] == PREFACE[*seen] => {
                    *seen += 1;
                    at += 1;
                    if *seen == PREFACE.len() {
                        self.place = Place::Opaque;
                    }
                }
                Place::Beginning(seen) => {
                    let seen = *seen;
                    self.place = Place::Head(Head::default());
                    self.read(&PREFACE[..seen]).map_err(|_| Refused(at))?;
                }
                Place::Body(left) | Place::Chunk(left) => {
                    let here = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    at += here;
                    *left -= here as u64;
                    if *left == 0 {
                        let of_chunk = matches!(self.place, Place::Chunk(_));
                        self.place = if of_chunk { Place::ChunkEnd } else { Place::Head(Head::default()) };
                    }
                }
                Place::Head(_) | Place::ChunkSize | Place::ChunkEnd | Place::Trailers => {
                    let Some(end) = bytes[at..].iter().position(|byte| *byte == b'\n') else {
                        self.line.extend_from_slice(&bytes[at..]);
                        return Ok(());
                    };
                    let line = &bytes[at..at + end];
                    at += end;
                    // Nearly every line arrives whole, and is read where it is.
                    if self.line.is_empty() {
                        self.place.end_line(line).ok_or(Refused(at))?;
                    } else {
                        self.line.extend_from_slice(line);
                        self.place.end_line(&self.line).ok_or(Refused(at))?;
                        self.line.clear();
                    }
                    at += 1;
                }
            }
        }
        Ok(())
    }
}

impl Place {
    /// Parses a complete line; `None` refuses it.
    fn end_line(&mut self, line: &[u8]) -> Option<()> {
        // A line with another ending is one line to some parsers and part of one to others.
        let line = line.strip_suffix(b"\r").filter(|line| !line.contains(&b'\r'))?;
        match self {
            Place::Head(head) => match head.read_line(line)? {
                Length::NotYet => {}
                Length::None => *self = Place::Head(Head::default()),
                Length::Known(length) => *self = Place::Body(length),
                Length::Chunked => *self = Place::ChunkSize,
            },
            Place::ChunkSize => {
                let size = chunk_size(line)?;
                *self = if size == 0 { Place::Trailers } else { Place::Chunk(size) };
            }
            Place::ChunkEnd => {
                line.is_empty().then_some(())?;
                *self = Place::ChunkSize;
            }
            Place::Trailers if line.is_empty() => *self = Place::Head(Head::default()),
            Place::Trailers => _ = field(line)?,
            Place::Beginning(_) | Place::Body(_) | Place::Chunk(_) | Place::Opaque => {}
        }
        Some(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(poison) = self.poison {
            // After the last of it, the end of the stream.
            let (now, later) = poison.split_at(poison.len().min(buf.remaining()));
            buf.put_slice(now);
            self.poison = Some(later);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if self.sequel.has_begun() {
            self.place = Place::Opaque;
        }
        if let Err(Refused(at)) = self.read(&buf.filled()[before..]) {
            buf.filled_mut()[before + at] = POISON[0];
            buf.set_filled(before + at + 1);
            self.poison = Some(&POISON[1..]);
            if let Some(metrics) = &self.counted {
                metrics.count_refused(Front::Proxy, 1);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
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

/// Bytes of a hostile client: what is refused does not depend on how the bytes arrive, and a request that is plain is not refused and
/// ends where it seems to.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let whole = Strict::new((), Sequel::default()).read(bytes).map_err(|Refused(at)| at);
    let mut strict = Strict::new((), Sequel::default());
    let cut = bytes.iter().enumerate().try_for_each(|(at, byte)| strict.read(&[*byte]).map_err(|_| at));
    assert_eq!(whole, cut, "{}", String::from_utf8_lossy(bytes));
    if let Some(length) = length_of_plain(bytes) {
        let mut strict = Strict::new((), Sequel::default());
        assert_eq!(strict.read(&bytes[..length]), Ok(()), "{}", String::from_utf8_lossy(bytes));
        assert!(matches!(&strict.place, Place::Head(head) if !head.has_begun()), "{}", String::from_utf8_lossy(bytes));
    }
}

#[cfg(test)]
mod tests;
