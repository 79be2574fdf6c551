//! The thread that talks to servers: one per process, started when something is first sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

use crate::error::{Error, Kind};
use crate::fork;

/// Work for the I/O thread.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime with a single thread, so that a call takes just two hops between threads.
pub(crate) struct Io {
    handle: Handle,
    inbox: Arc<Inbox>,
}

/// Jobs for the thread. Many jobs need only one wake-up.
struct Inbox {
    jobs: Mutex<Vec<Job>>,
    notify: Notify,
}

/// Read without a lock: threads that wait for an answer read it at any time, also while another one forks.
static IO: ArcSwapOption<(u64, Arc<Io>)> = ArcSwapOption::const_empty();

impl Io {
    /// The instance of this process, started if necessary.
    pub(crate) fn get() -> Result<Arc<Io>, Error> {
        match Io::running() {
            Some(io) => Ok(io),
            None => fork::still(|| Io::running().map_or_else(Io::replace, Ok)),
        }
    }

    fn running() -> Option<Arc<Io>> {
        IO.load().as_deref().filter(|(generation, _)| *generation == fork::generation()).map(|(_, io)| io.clone())
    }

    fn replace() -> Result<Arc<Io>, Error> {
        let io = Arc::new(Io::start().map_err(|error| {
            Error::new(Kind::Store, format!("cannot start the thread that talks to the store: {error}"))
        })?);
        let of_the_parent = IO.swap(Some(Arc::new((fork::generation(), io.clone()))));
        // Its thread does not exist in this process, and its locks may be held forever.
        std::mem::forget(of_the_parent);
        Ok(io)
    }

    fn start() -> std::io::Result<Io> {
        let inbox = Arc::new(Inbox { jobs: Mutex::default(), notify: Notify::new() });
        let (started, handle) = std::sync::mpsc::sync_channel(1);
        let of_thread = inbox.clone();
        std::thread::Builder::new().name("tollkeeper-io".into()).spawn(move || {
            block_signals();
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(runtime.handle().clone()));
            runtime.block_on(of_thread.serve());
        })?;
        let handle = handle.recv().unwrap_or_else(|_| Err(std::io::Error::other("it ended at once")))?;
        Ok(Io { handle, inbox })
    }

    /// Polls once on this thread: an answer that needs no server is ready then.
    pub(crate) fn poll_once<T>(&self, future: Pin<&mut (dyn Future<Output = T> + Send)>) -> Poll<T> {
        let _context = self.handle.enter();
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Hands jobs to the thread.
    pub(crate) fn submit(&self, more: impl IntoIterator<Item = Job>) {
        let mut jobs = self.inbox.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = jobs.is_empty();
        jobs.extend(more);
        drop(jobs);
        // The first job in the inbox wakes the thread for all that follow.
        if is_first {
            self.inbox.notify.notify_one();
        }
    }

    /// Blocks this thread until the I/O thread has the result.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        mut future: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, Error> {
        let (done, wait) = oneshot::channel();
        let job: Job = Box::pin(async move {
            let _ = done.send(future.as_mut().await);
        });
        self.submit([job]);
        wait.blocking_recv().map_err(|_| Error::new(Kind::Store, "the call ended without an answer"))
    }

    /// Drops something where a server can be called, from any thread: also from one that is ending, which has no runtime's context any
    /// more.
    pub(crate) fn drop_within(&self, held: impl Send + 'static) {
        if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
            self.submit([Box::pin(async move { drop(held) }) as Job]);
        } else {
            self.within(|| drop(held));
        }
    }

    /// Runs a closure where tokio's spawn works.
    pub(crate) fn within<T>(&self, run: impl FnOnce() -> T) -> T {
        let _context = self.handle.enter();
        run()
    }
}

impl Inbox {
    async fn serve(self: Arc<Inbox>) {
        loop {
            self.notify.notified().await;
            let jobs = std::mem::take(&mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
            for job in jobs {
                // Inside the runtime this is a push to a list.
                tokio::spawn(job);
            }
        }
    }
}

/// Signals are for the host's main thread.
fn block_signals() {
    #[cfg(unix)]
    // SAFETY: a fully initialized set is applied to the calling thread only.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
