//! A connection on which nothing moves for too long fails, whatever the protocol on it waits for: the first byte, the
//! rest of a head, the next request, or a peer that does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::front::alarm::Alarm;

/// Counts the requests in flight on a connection that may be silent in the meantime: a client that waits for a slow
/// answer sends nothing. What they wait for must have its own limit. And knows which large answers the client should read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<Activity>);

#[derive(Debug, Default)]
struct Activity {
    requests: AtomicUsize,
    /// When each large answer was made that has not been read yet.
    unread: Mutex<Vec<Instant>>,
}

/// One request in flight, until dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Busy);

impl Busy {
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.requests.fetch_add(1, Relaxed);
        UnderWay(self.clone())
    }

    /// Expects the peer to read a large answer.
    pub(crate) fn owe(&self) -> Unread {
        let since = Instant::now();
        self.unread().push(since);
        Unread { busy: self.clone(), since }
    }

    /// Whether an answer has waited for longer than this. A client that reads a byte now and then never stalls.
    fn is_unread_for(&self, limit: Duration) -> bool {
        self.oldest_unread().is_some_and(|since| since.elapsed() >= limit)
    }

    fn oldest_unread(&self) -> Option<Instant> {
        self.unread().iter().min().copied()
    }

    fn unread(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.0.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Relaxed);
    }
}

/// A large answer that the peer has not read yet, until dropped.
#[derive(Debug)]
pub(crate) struct Unread {
    busy: Busy,
    since: Instant,
}

impl Drop for Unread {
    fn drop(&mut self) {
        let mut unread = self.busy.unread();
        if let Some(at) = unread.iter().position(|since| *since == self.since) {
            unread.swap_remove(at);
        }
    }
}

pub(crate) struct Stalling<S> {
    stream: S,
    limit: Duration,
    busy: Busy,
    moved: Instant,
    /// Since when nothing could be written.
    blocked: Option<Instant>,
    alarm: Alarm,
}

impl<S> Stalling<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Stalling<S> {
        let (busy, moved, alarm) = (Busy::default(), Instant::now(), Alarm::default());
        Stalling { stream, limit, busy, moved, blocked: None, alarm }
    }

    /// Lets reads wait for as long as requests are in flight. Writes never may: a blocked write means that the peer
    /// does not read.
    pub(crate) fn unless(self, busy: Busy) -> Stalling<S> {
        Stalling { busy, ..self }
    }

    /// Passes on the result of a read; if nothing was read, waits for the alarm.
    fn watch_read<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.moved = Instant::now();
            return done;
        }
        loop {
            ready!(self.alarm.poll(self.due(self.moved), cx));
            if self.busy.is_unread_for(self.limit) || self.busy.0.requests.load(Relaxed) == 0 {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.moved = Instant::now();
        }
    }

    /// Passes on the result of a write; if nothing was written, waits for the alarm.
    fn watch_write<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            (self.moved, self.blocked) = (Instant::now(), None);
            return done;
        }
        let blocked = *self.blocked.get_or_insert_with(Instant::now);
        self.alarm.poll(self.due(blocked), cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// When a peer that has done nothing since then has stalled. What it has not read may be older: reading a byte now and
    /// then does not help.
    fn due(&self, since: Instant) -> Instant {
        self.busy.oldest_unread().map_or(since, |unread| unread.min(since)) + self.limit
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch_read(cx, done)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch_write(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch_write(cx, done)
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
