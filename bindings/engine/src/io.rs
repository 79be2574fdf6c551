//! The one thread that talks to servers. It is started when something is first sent, once in a process.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

use crate::error::{Error, Kind};
use crate::fork;

/// Work that goes on in the I/O thread.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime with a single thread: an answer takes two hops, there and back, and no more.
pub(crate) struct Io {
    handle: Handle,
    inbox: Arc<Inbox>,
}

/// What the thread should take on. Many jobs are one wake-up.
struct Inbox {
    jobs: Mutex<Vec<Job>>,
    notify: Notify,
}

static IO: Mutex<Option<(u64, Arc<Io>)>> = Mutex::new(None);

impl Io {
    /// The one of this process, started if need be.
    pub(crate) fn get() -> Result<Arc<Io>, Error> {
        let mut current = IO.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, io)) = &*current
            && *generation == fork::generation()
        {
            return Ok(io.clone());
        }
        let io = Arc::new(Io::start().map_err(|error| {
            Error::new(Kind::Store, format!("cannot start the thread that talks to the store: {error}"))
        })?);
        if let Some((_, of_the_parent)) = current.replace((fork::generation(), io.clone())) {
            // Its thread does not exist here, and its locks may be held forever.
            std::mem::forget(of_the_parent);
        }
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

    /// Polls once on this thread: what needs no answer from a server is ready then.
    pub(crate) fn poll_once<T>(&self, future: Pin<&mut (dyn Future<Output = T> + Send)>) -> Poll<T> {
        let _context = self.handle.enter();
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Hands a job to the thread.
    pub(crate) fn submit(&self, job: Job) {
        let mut jobs = self.inbox.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = jobs.is_empty();
        jobs.push(job);
        drop(jobs);
        // Whoever was first has woken it for the others.
        if is_first {
            self.inbox.notify.notify_one();
        }
    }

    /// Waits on this thread for what the I/O thread carries on.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        mut future: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, Error> {
        let (done, wait) = oneshot::channel();
        self.submit(Box::pin(async move {
            let _ = done.send(future.as_mut().await);
        }));
        wait.blocking_recv().map_err(|_| Error::new(Kind::Store, "the call ended without an answer"))
    }

    /// Runs something where tokio's spawn works: what is dropped there may have something to give back.
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
                // From inside of the runtime this is a push to a list.
                tokio::spawn(job);
            }
        }
    }
}

/// Signals are for the host's main thread.
fn block_signals() {
    #[cfg(unix)]
    // SAFETY: a set that was filled is given to the calling thread only.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
