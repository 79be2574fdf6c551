//! Idle connections to the upstream.
//!
//! Each of the threads that serve clients keeps its own, so that a request and its upstream connection run on one thread. A
//! thread that has none takes over one of another thread, rather than open one more: a small upstream has few to give.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::exchange::Left;

/// Shorter than most servers keep an idle connection: one that is being closed loses a request.
const KEEP_IDLE: Duration = Duration::from_secs(4);
/// How often connections that were idle for too long are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// What is lost with a request on a connection that the upstream has just closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stakes {
    /// Nothing: it is sent again.
    Low,
    /// The request. Looking closely costs a system call.
    High,
}

/// Idle connections.
#[derive(Debug)]
pub(super) struct Pool {
    shelves: Box<[Mutex<Shelf>]>,
}

/// Those of one thread.
#[derive(Debug, Default)]
struct Shelf {
    /// In the order in which they became idle. The last is taken first; other threads take the first, which is the least likely
    /// to be needed here.
    idle: VecDeque<Idle>,
    /// Whether a task looks for those that were idle for too long.
    is_swept: bool,
}

#[derive(Debug)]
struct Idle {
    /// Boxed, so that it is not moved with every request.
    connection: Box<Connection>,
    since: Instant,
}

impl Idle {
    /// The connection, if it is still open.
    fn use_again(self, cx: &mut Context<'_>) -> Option<Box<Connection>> {
        let Idle { mut connection, since } = self;
        if since.elapsed() >= KEEP_IDLE {
            return None;
        }
        connection.is_open(cx).then_some(connection)
    }
}

impl Pool {
    pub(super) fn new(threads: usize) -> Arc<Pool> {
        Arc::new(Pool { shelves: (0..threads.max(1)).map(|_| Mutex::default()).collect() })
    }

    /// An idle connection that is still open. It runs on this thread from now on.
    pub(super) fn take(self: &Arc<Self>, thread: usize, stakes: Stakes, cx: &mut Context<'_>) -> Option<Taken> {
        let connection = self.take_own(thread, stakes, cx).or_else(|| self.take_over(thread, cx))?;
        Some(Taken { connection: Some(connection), pool: self.clone(), thread, is_new: false })
    }

    fn take_own(&self, thread: usize, stakes: Stakes, cx: &mut Context<'_>) -> Option<Box<Connection>> {
        loop {
            let idle = self.shelf(thread).idle.pop_back()?;
            if stakes == Stakes::High {
                idle.connection.doubt();
            }
            if let Some(connection) = idle.use_again(cx) {
                return Some(connection);
            }
        }
    }

    /// One of another thread.
    fn take_over(&self, thread: usize, cx: &mut Context<'_>) -> Option<Box<Connection>> {
        let others = (1..self.shelves.len()).map(|distance| thread + distance);
        for other in others {
            loop {
                let Some(mut idle) = self.shelf(other).idle.pop_front() else { break };
                idle.connection.move_here();
                if let Some(connection) = idle.use_again(cx) {
                    return Some(connection);
                }
            }
        }
        None
    }

    /// A connection that was just opened.
    pub(super) fn own(self: &Arc<Self>, thread: usize, connection: Connection) -> Taken {
        Taken { connection: Some(Box::new(connection)), pool: self.clone(), thread, is_new: true }
    }

    fn put(self: &Arc<Self>, thread: usize, connection: Box<Connection>) {
        // Without a runtime the process is about to end.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut shelf = self.shelf(thread);
        shelf.idle.push_back(Idle { connection, since: Instant::now() });
        if !std::mem::replace(&mut shelf.is_swept, true) {
            runtime.spawn(sweep(Arc::downgrade(self), thread));
        }
    }

    fn shelf(&self, thread: usize) -> MutexGuard<'_, Shelf> {
        self.shelves[thread % self.shelves.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that were idle for too long, until there is none left.
async fn sweep(pool: Weak<Pool>, thread: usize) {
    loop {
        sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut shelf = pool.shelf(thread);
        let expired = shelf.idle.partition_point(|idle| idle.since.elapsed() >= KEEP_IDLE);
        let closed: Vec<Idle> = shelf.idle.drain(..expired).collect();
        shelf.is_swept = !shelf.idle.is_empty();
        let is_over = !shelf.is_swept;
        drop(shelf);
        drop(closed);
        if is_over {
            return;
        }
    }
}

/// A connection in use. When dropped it goes back, if it can take another request, and is closed otherwise.
#[derive(Debug)]
pub(in super::super) struct Taken {
    /// `None` once it is gone.
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
    thread: usize,
    is_new: bool,
}

impl Taken {
    /// Whether no other request was sent on it before.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_deref_mut()
    }

    /// Reads and writes as much as is possible now.
    pub(in super::super) fn work(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.work(cx);
        }
    }

    /// The next piece of a body that hyper does not read.
    pub(in super::super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        match &mut self.connection {
            Some(connection) => connection.poll_piece(cx),
            None => Poll::Ready(Ok(None)),
        }
    }

    /// How much of that body is left.
    pub(in super::super) fn left(&self) -> Left {
        self.connection.as_ref().map_or(Left::Nothing, |connection| connection.left())
    }

    /// Ready if a piece that was due then is late.
    pub(in super::super) fn poll_late(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.connection {
            Some(connection) => connection.poll_late(due, cx),
            None => Poll::Pending,
        }
    }

    /// From now on it runs in a task of its own, and does not go back.
    pub(in super::super) fn detach(mut self) {
        if let Some(connection) = self.connection.take() {
            connection.detach();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && connection.become_idle()
        {
            self.pool.put(self.thread, connection);
        }
    }
}
