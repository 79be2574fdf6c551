//! The threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on its thread. Where threads steal work from each other, what one of them reads is often handled by
//! another, which has to be woken for it. What runs beside the requests has a runtime of its
//! own, and does not hold them up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

#[cfg(target_os = "linux")]
use super::turns::take_turns;

/// Threads that serve connections. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers(Box<[Worker]>);

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// How many connections it serves.
    connections: Arc<AtomicUsize>,
    /// Ends it when dropped.
    _stop: oneshot::Sender<()>,
}

impl Workers {
    /// One for each core.
    pub(crate) fn start() -> io::Result<Arc<Workers>> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        Ok(Arc::new(Workers((0..count).map(Worker::start).collect::<io::Result<_>>()?)))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// A place on the thread with the fewest connections; in the current runtime if there are no workers.
    pub(super) fn place(workers: Option<&Workers>) -> Place {
        let least = workers.and_then(|workers| {
            let all = workers.0.iter().enumerate();
            all.min_by_key(|(_, worker)| worker.connections.load(Relaxed))
        });
        let (thread, runtime, connections) = match least {
            Some((thread, worker)) => (thread, worker.runtime.clone(), worker.connections.clone()),
            None => (0, Handle::current(), Arc::default()),
        };
        connections.fetch_add(1, Relaxed);
        Place { runtime, thread, connections }
    }
}

impl Worker {
    fn start(number: usize) -> io::Result<Worker> {
        // A busy runtime asks the system after so many polls of tasks what else can be read. Nobody else serves what waits for that,
        // and one poll can move a large piece of a body.
        const POLLS: u32 = 16;
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().event_interval(POLLS);
        #[cfg(target_os = "linux")]
        take_turns(&mut runtime);
        let runtime = runtime.build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        thread::Builder::new().name(format!("tollkeeper-{number}")).spawn(move || {
            // Nothing is ever sent: it ends when the sender is dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Worker { runtime: handle, connections: Arc::default(), _stop: stop })
    }
}

/// The place of a connection on a thread, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    runtime: Handle,
    thread: usize,
    connections: Arc<AtomicUsize>,
}

impl Place {
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The number of its thread.
    pub(super) fn thread(&self) -> usize {
        self.thread
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::task::Poll;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    use super::*;

    /// A thread with a task that always had something to do looked for new input only after 61 polls of it, each of which could take
    /// milliseconds.
    #[test]
    fn a_busy_task_does_not_hide_for_long_what_others_wait_for() {
        let workers = Workers(Box::new([Worker::start(0).expect("a thread")]));
        let (polls, (done, is_done)) = (Arc::new(AtomicUsize::new(0)), std::sync::mpsc::channel());
        workers.0[0].runtime.spawn(async move {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let mut reader = TcpStream::connect(address).await.expect("a connection");
            let (mut writer, counted) = (listener.accept().expect("a connection").0, polls.clone());
            tokio::spawn(async move {
                reader.read_u8().await.expect("a byte");
                let _ = done.send(counted.load(Relaxed));
            });
            tokio::task::yield_now().await;
            // From here on it can be read, but the runtime has yet to learn that.
            writer.write_all(b"x").expect("written");
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if polls.fetch_add(1, Relaxed) < 1_000 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        });
        let polled = is_done.recv().expect("read");
        assert!(polled <= 20, "it was read after {polled} polls of the busy task");
    }

    #[test]
    fn connections_are_spread_over_the_threads() {
        let workers = Workers((0..3).map(|number| Worker::start(number).expect("a thread")).collect());
        let mut places: Vec<Place> = (0..9).map(|_| Workers::place(Some(&workers))).collect();
        let on = |places: &[Place], thread| places.iter().filter(|place| place.thread() == thread).count();
        assert_eq!([0, 1, 2].map(|thread| on(&places, thread)), [3; 3]);
        places.retain(|place| place.thread() != 1);
        assert_eq!([(); 3].map(|()| Workers::place(Some(&workers)).thread()), [1; 3], "who has none gets the next");
    }
}
