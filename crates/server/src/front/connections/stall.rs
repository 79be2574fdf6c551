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
/// answer sends nothing. What they wait for must have its own limit. And knows which answers the client should read.
#[derive(Clone, Debug)]
pub(crate) struct Busy(Arc<Activity>);

#[derive(Debug)]
struct Activity {
    requests: AtomicUsize,
    unread: Mutex<Vec<Arc<Waiting>>>,
    /// How long an answer may wait.
    patience: Duration,
}

/// Since when an answer has waited to be read; `None` while there is nothing to read of it.
type Waiting = Mutex<Option<Instant>>;

/// One request in flight, until dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Busy);

impl Busy {
    /// Answers may wait for so long.
    pub(crate) fn new(patience: Duration) -> Busy {
        Busy(Arc::new(Activity { requests: AtomicUsize::new(0), unread: Mutex::default(), patience }))
    }

    pub(crate) fn begin(&self) -> UnderWay {
        self.0.requests.fetch_add(1, Relaxed);
        UnderWay(self.clone())
    }

    /// Expects the peer to read an answer.
    pub(crate) fn owe(&self) -> Unread {
        let waiting = Arc::new(Mutex::new(Some(Instant::now())));
        self.unread().push(waiting.clone());
        Unread { busy: self.clone(), waiting }
    }

    /// When an answer will have waited for too long. A client that reads a byte of others now and then never stalls. Nobody wakes
    /// the connection when one waits again, so until then it is as if each began to wait now.
    fn unread_due(&self) -> Option<Instant> {
        let since = self.unread().iter().map(|waiting| locked(waiting).unwrap_or_else(Instant::now)).min()?;
        Some(since + self.0.patience)
    }

    fn unread(&self) -> MutexGuard<'_, Vec<Arc<Waiting>>> {
        locked(&self.0.unread)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Relaxed);
    }
}

/// An answer that the peer has not read yet, until dropped.
#[derive(Debug)]
pub(crate) struct Unread {
    busy: Busy,
    waiting: Arc<Waiting>,
}

impl Unread {
    /// The peer has read some of it, and is to read more.
    pub(crate) fn was_read(&self) {
        *locked(&self.waiting) = Some(Instant::now());
    }

    /// The peer has read all that there is for now.
    pub(crate) fn pause(&self) {
        *locked(&self.waiting) = None;
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let mut unread = self.busy.unread();
        if let Some(at) = unread.iter().position(|waiting| Arc::ptr_eq(waiting, &self.waiting)) {
            unread.swap_remove(at);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Stalling<S> {
    stream: S,
    limit: Duration,
    busy: Busy,
    /// Since when nothing has moved; `None` while it does. The clock is read when something has to wait, and not for every piece.
    still: Option<Instant>,
    /// Since when nothing could be written.
    blocked: Option<Instant>,
    alarm: Alarm,
}

impl<S> Stalling<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Stalling<S> {
        let (busy, alarm) = (Busy::new(limit), Alarm::default());
        Stalling { stream, limit, busy, still: None, blocked: None, alarm }
    }

    /// Lets reads wait for as long as requests are in flight. Writes never may: a blocked write means that the peer
    /// does not read.
    pub(crate) fn unless(self, busy: Busy) -> Stalling<S> {
        Stalling { busy, ..self }
    }

    /// Passes on the result of a read; if nothing was read, waits for the alarm.
    fn watch_read<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.still = None;
            return done;
        }
        loop {
            let still = *self.still.get_or_insert_with(Instant::now);
            ready!(self.alarm.poll(self.due(still), cx));
            let is_unread = self.busy.unread_due().is_some_and(|due| due <= Instant::now());
            if is_unread || self.busy.0.requests.load(Relaxed) == 0 {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.still = None;
        }
    }

    /// Passes on the result of a write; if nothing was written, waits for the alarm.
    fn watch_write<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            (self.still, self.blocked) = (None, None);
            return done;
        }
        let blocked = *self.blocked.get_or_insert_with(Instant::now);
        self.alarm.poll(self.due(blocked), cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// When a peer that has done nothing since then has stalled. What it has not read may be older: reading a byte now and
    /// then does not help.
    fn due(&self, since: Instant) -> Instant {
        let due = since + self.limit;
        self.busy.unread_due().map_or(due, |unread| unread.min(due))
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::AsyncReadExt as _;
    use tokio::time::sleep;

    use super::*;

    /// The alarm had been set for the idle connection by then, and nothing set it again.
    #[tokio::test]
    async fn an_answer_that_waits_again_is_noticed_in_time() {
        let (here, _peer) = tokio::io::duplex(8);
        let busy = Busy::new(Duration::from_millis(100));
        let mut stream = Stalling::new(here, Duration::from_secs(3_600)).unless(busy.clone());
        let (_under_way, unread) = (busy.begin(), busy.owe());
        unread.pause();
        let waits_again = async {
            sleep(Duration::from_millis(300)).await;
            unread.was_read();
            pending::<()>().await;
        };
        let mut byte = [0];
        let read = async {
            tokio::select! {
                read = stream.read(&mut byte) => read,
                () = waits_again => Ok(0),
            }
        };
        let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("it is noticed");
        assert_eq!(read.expect_err("cut off").kind(), io::ErrorKind::TimedOut);
    }
}
