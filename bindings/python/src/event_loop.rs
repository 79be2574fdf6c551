//! Delivers answers into an event loop: one wake-up for many.
//!
//! The I/O thread never runs Python. It writes to an eventfd (a pipe on systems without it) that the loop watches;
//! the loop then takes all answers that are ready. Loops that cannot watch a descriptor (Windows' proactor) are woken
//! by `call_soon_threadsafe`, also once for many answers.
//!
//! Questions go to the I/O thread together too, where several callers ask in one turn of the loop: to wake that thread costs
//! about as much as to ask. Who asks alone does not wait for others.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyNotImplementedError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use tollkeeper::Overloaded;
use tollkeeper_engine::{Checked, Engine, Error, Kind, Mailbox, Progress, Reply, Work};

use crate::awaitable::Answered;
use crate::errors::raise;
use crate::exception::KeyException;
use crate::hold::{Permit, Reservation, Settlement};
use crate::later::Later;
use crate::notice::report;
use crate::verdict::{Refusal, Verdict};

/// What to turn an answer into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// What a caller of the limiter gets.
    Plain,
    /// What middleware gets: a verdict that holds its slots, or a refusal.
    Http,
}

/// The caller that waits for an answer.
struct Waiter {
    later: Py<Later>,
    shape: Shape,
    engine: Arc<Engine>,
}

/// The event loops of this thread, the most recently used first.
struct Loop {
    it: Py<PyWeakrefReference>,
    port: Arc<Port>,
    /// The process that it belongs to. Asking for its number would be a system call.
    generation: u64,
}

impl Loop {
    /// Whether it may run again. The answers that a closed one did not take would keep it, and its descriptor, forever.
    fn is_in_use(&self, py: Python<'_>, generation: u64) -> bool {
        let is_closed = |it: &Bound<'_, PyAny>| it.call_method0(intern!(py, "is_closed")).and_then(|is| is.is_truthy());
        self.generation == generation && self.it.bind(py).upgrade().is_some_and(|it| !is_closed(&it).unwrap_or(false))
    }
}

/// Questions and answers of one loop.
struct Port {
    mailbox: Arc<Mailbox<Waiter>>,
    /// Questions that have not been sent yet.
    asked: Mutex<Vec<(Waiter, Work)>>,
    /// How many callers wait for an answer.
    waiting: AtomicUsize,
    /// What the loop watches, if it can watch a descriptor.
    #[cfg(unix)]
    signal: Option<Arc<signal::Signal>>,
    /// Whether the loop's reader is continuing tasks: the loop cannot call it meanwhile.
    is_delivering: AtomicBool,
}

/// As many questions as this are sent at once, so that none waits for much else that the loop has to do.
const TOGETHER: usize = 16;

impl Port {
    fn new(#[cfg(unix)] signal: Option<Arc<signal::Signal>>, wake: impl Fn() + Send + Sync + 'static) -> Arc<Port> {
        let (mailbox, asked, waiting) = (Mailbox::new(wake), Mutex::default(), AtomicUsize::new(0));
        let is_delivering = AtomicBool::new(false);
        Arc::new(Port {
            mailbox,
            asked,
            waiting,
            #[cfg(unix)]
            signal,
            is_delivering,
        })
    }

    /// Gives the loop another reader, which it can call although it is still in the call of the former one.
    fn watch_again(self: &Arc<Self>, running: &Bound<'_, PyAny>) -> PyResult<()> {
        self.is_delivering.store(false, Relaxed);
        #[cfg(unix)]
        if let Some(signal) = &self.signal {
            running.call_method1(intern!(running.py(), "add_reader"), (signal.descriptor(), Reader(self.clone())))?;
        }
        Ok(())
    }

    /// Asks: at once if nobody else waits, otherwise with the others of this turn of the loop.
    fn ask(self: &Arc<Self>, running: &Bound<'_, PyAny>, waiter: Waiter, work: Work) -> PyResult<()> {
        let py = running.py();
        if self.waiting.fetch_add(1, Relaxed) == 0 {
            return self.mailbox.expect(waiter, work).map_err(|error| {
                self.waiting.fetch_sub(1, Relaxed);
                raise(py, error)
            });
        }
        let count = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push((waiter, work));
            asked.len()
        };
        match count {
            1 => match running.call_method1(intern!(py, "call_soon"), (Flush(self.clone()),)) {
                Ok(_) => Ok(()),
                Err(_) => self.flush(py),
            },
            TOGETHER.. => self.flush(py),
            _ => Ok(()),
        }
    }

    /// Sends what was asked.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        let waiting: Vec<Py<Later>> = asked.iter().map(|(waiter, _)| waiter.later.clone_ref(py)).collect();
        let Err(error) = self.mailbox.expect_all(asked) else { return Ok(()) };
        // Nobody will answer.
        self.waiting.fetch_sub(waiting.len(), Relaxed);
        waiting.iter().try_for_each(|later| Later::complete_soon(later.bind(py), Err(raise(py, error.clone()))))
    }
}

/// What the loop calls at the end of a turn in which several callers asked.
#[pyclass(frozen)]
struct Flush(Arc<Port>);

#[pymethods]
impl Flush {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.0.flush(py)
    }
}

thread_local! {
    static LOOPS: RefCell<Vec<Loop>> = const { RefCell::new(Vec::new()) };
}

static GET_RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// An awaitable for the running loop; if the answer is ready, no loop is needed.
pub(crate) fn answered(py: Python<'_>, engine: &Arc<Engine>, progress: Progress, shape: Shape) -> PyResult<Py<PyAny>> {
    match progress {
        Progress::Ready(reply) => {
            report(py, engine)?;
            let answer = python(py, engine, reply, shape)?;
            Ok(Answered::ready(answer).into_pyobject(py)?.into_any().unbind())
        }
        Progress::Pending(work) => {
            let later = later(py, engine, work, shape)?;
            Ok(Answered::later(later).into_pyobject(py)?.into_any().unbind())
        }
    }
}

/// An answer for the running loop.
pub(crate) fn later(py: Python<'_>, engine: &Arc<Engine>, work: Work, shape: Shape) -> PyResult<Py<Later>> {
    let running = GET_RUNNING_LOOP.import(py, "asyncio", "get_running_loop")?.call0().map_err(|_| {
        let problem =
            "no event loop of asyncio is running; await this inside of one, or call the method that ends with _sync";
        raise(py, Error::new(Kind::Usage, problem))
    })?;
    let port = port(&running)?;
    let later = Py::new(py, Later::new(running.clone().unbind()))?;
    let waiter = Waiter { later: later.clone_ref(py), shape, engine: engine.clone() };
    port.ask(&running, waiter, work)?;
    Ok(later)
}

/// Waits for an answer on this thread, without the interpreter's lock.
pub(crate) fn wait(py: Python<'_>, engine: &Arc<Engine>, progress: Progress, shape: Shape) -> PyResult<Py<PyAny>> {
    let reply = reply(py, progress);
    report(py, engine)?;
    python(py, engine, reply, shape)
}

/// The same, without telling the application what was logged meanwhile.
pub(crate) fn unreported(
    py: Python<'_>,
    engine: &Arc<Engine>,
    progress: Progress,
    shape: Shape,
) -> PyResult<Py<PyAny>> {
    python(py, engine, reply(py, progress), shape)
}

fn reply(py: Python<'_>, progress: Progress) -> Result<Reply, Error> {
    match progress {
        Progress::Ready(reply) => reply,
        Progress::Pending(work) => py.detach(|| work.wait()),
    }
}

/// An answer as a Python object.
pub(crate) fn python(
    py: Python<'_>,
    engine: &Arc<Engine>,
    reply: Result<Reply, Error>,
    shape: Shape,
) -> PyResult<Py<PyAny>> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            return match error.answer {
                Some(answer) if shape == Shape::Http => Ok(Refusal(*answer).into_pyobject(py)?.into_any().unbind()),
                _ => Err(raise(py, error)),
            };
        }
    };
    Ok(match (reply, shape) {
        (Reply::Checked(checked), _) => Verdict::new(checked, None).into_pyobject(py)?.into_any().unbind(),
        (Reply::CheckedMany(each), _) => verdicts(py, each)?,
        (Reply::Acquired(checked, slots), Shape::Http) => {
            Verdict::new(checked, Some(slots)).into_pyobject(py)?.into_any().unbind()
        }
        (Reply::Acquired(checked, slots), Shape::Plain) => {
            Permit::new(py, checked, slots)?.into_pyobject(py)?.into_any().unbind()
        }
        (Reply::Reserved(checked, estimate), _) => {
            Reservation::new(py, engine.clone(), checked, estimate)?.into_pyobject(py)?.into_any().unbind()
        }
        (Reply::ReservedHttp(checked, slots, estimate), _) => {
            let verdict = Verdict::provisional(engine.clone(), checked, slots, estimate);
            verdict.into_pyobject(py)?.into_any().unbind()
        }
        (Reply::Settled(settlement), _) => Settlement::list(py, settlement)?.into_any(),
        (Reply::Buckets(buckets), _) => crate::limiter::buckets(py, buckets)?,
        (Reply::Reset(had_state), _) => had_state.into_pyobject(py)?.to_owned().into_any().unbind(),
        (Reply::Exception(None), _) => py.None(),
        (Reply::Exception(Some(exception)), _) => KeyException(*exception).into_pyobject(py)?.into_any().unbind(),
        (Reply::Exceptions(all), _) => {
            let all: Vec<KeyException> = all.into_iter().map(KeyException).collect();
            all.into_pyobject(py)?.unbind()
        }
        (Reply::Done, _) => py.None(),
    })
}

/// The verdicts of a batch. If some of its requests were shed, they are in the exception: others may have been charged.
fn verdicts(py: Python<'_>, each: Vec<Result<Checked, Overloaded>>) -> PyResult<Py<PyAny>> {
    let shed = each.iter().find_map(|decided| decided.as_ref().err().copied());
    let verdicts = each.into_iter().map(|decided| decided.ok().map(|checked| Verdict::new(checked, None)));
    let verdicts = verdicts.collect::<Vec<_>>().into_pyobject(py)?;
    match shed {
        None => Ok(verdicts.unbind()),
        Some(overloaded) => {
            let error = raise(py, overloaded.into());
            error.value(py).setattr(intern!(py, "verdicts"), verdicts)?;
            Err(error)
        }
    }
}

/// The port of a loop, created when the loop first waits for something.
fn port(running: &Bound<'_, PyAny>) -> PyResult<Arc<Port>> {
    let generation = tollkeeper_engine::generation();
    let known = LOOPS.with_borrow(|loops| {
        let is_it = |known: &&Loop| {
            known.generation == generation && known.it.bind(running.py()).upgrade().is_some_and(|it| it.is(running))
        };
        loops.iter().find(is_it).map(|known| known.port.clone())
    });
    if let Some(port) = known {
        // A task that has just made its loop a nested one, and runs it, would wait forever: see `is_nested`.
        if port.is_delivering.load(Relaxed) && is_nested(running) {
            port.watch_again(running)?;
        }
        return Ok(port);
    }
    let it = PyWeakrefReference::new(running)?;
    let port = watched(running)?;
    // Without the list: to ask a loop, or to drop what waits in it, may run Python and come back here.
    let mut loops = LOOPS.take();
    loops.retain(|known| known.is_in_use(running.py(), generation));
    loops.insert(0, Loop { it: it.unbind(), port: port.clone(), generation });
    LOOPS.with_borrow_mut(|meanwhile| meanwhile.splice(0..0, loops).for_each(drop));
    Ok(port)
}

/// Whether a task can run its own loop again, as with `nest_asyncio`. While the loop's reader continues a task, the loop cannot call
/// that reader: such a task would wait for its next answers forever.
fn is_nested(event_loop: &Bound<'_, PyAny>) -> bool {
    matches!(event_loop.getattr_opt(intern!(event_loop.py(), "_nest_patched")), Ok(Some(_)))
}

/// A port that a loop watches.
fn watched(running: &Bound<'_, PyAny>) -> PyResult<Arc<Port>> {
    let py = running.py();
    #[cfg(unix)]
    {
        let signal = Arc::new(signal::Signal::new()?);
        let of_thread = signal.clone();
        let port = Port::new(Some(signal.clone()), move || of_thread.raise());
        match running.call_method1(intern!(py, "add_reader"), (signal.descriptor(), Reader(port.clone()))) {
            Ok(_) => return Ok(port),
            Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    let holder: Arc<std::sync::OnceLock<(Py<PyWeakrefReference>, Py<Reader>)>> = Arc::default();
    let of_thread = holder.clone();
    let wake = move || {
        // While the interpreter shuts down, no caller waits any more.
        Python::try_attach(|py| {
            let Some((running, reader)) = of_thread.get() else { return };
            if let Some(running) = running.bind(py).upgrade() {
                // A loop that was closed in between has no waiting callers.
                let _ = running.call_method1(intern!(py, "call_soon_threadsafe"), (reader.clone_ref(py),));
            }
        });
    };
    let port = Port::new(
        #[cfg(unix)]
        None,
        wake,
    );
    let reader = Py::new(py, Reader(port.clone()))?;
    let _ = holder.set((PyWeakrefReference::new(running)?.unbind(), reader));
    Ok(port)
}

/// What the loop calls when answers are ready.
#[pyclass(frozen)]
struct Reader(Arc<Port>);

#[pymethods]
impl Reader {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Reader(port) = self;
        #[cfg(unix)]
        if let Some(signal) = &port.signal {
            signal.clear();
        }
        let arrived = port.mailbox.take();
        port.waiting.fetch_sub(arrived.len(), Relaxed);
        let is_nested = arrived.first().is_some_and(|(waiter, _)| is_nested(waiter.later.get().event_loop(py)));
        port.is_delivering.store(!is_nested, Relaxed);
        // Before the answers that these lines explain.
        let mut outcome = arrived.first().map_or(Ok(()), |(waiter, _)| report(py, &waiter.engine));
        for (Waiter { later, shape, engine }, reply) in arrived {
            let later = later.bind(py);
            // A cancelled caller no longer waits; what the answer holds is released when it is dropped.
            let answer = || python(py, &engine, reply, shape);
            let completed = match outcome {
                Ok(()) if !is_nested => Later::complete(later, answer),
                _ if later.get().done() => Ok(()),
                _ => Later::complete_soon(later, answer()),
            };
            outcome = outcome.and(completed);
        }
        port.is_delivering.store(false, Relaxed);
        outcome
    }
}

#[cfg(unix)]
mod signal {
    //! A file descriptor that becomes readable when there is something to do.

    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

    /// An eventfd, or both ends of a pipe.
    pub(super) struct Signal {
        read: OwnedFd,
        write: Option<OwnedFd>,
    }

    impl Signal {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        pub(super) fn new() -> io::Result<Signal> {
            // SAFETY: a new descriptor that nothing else owns.
            let read = unsafe {
                match libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) {
                    -1 => return Err(io::Error::last_os_error()),
                    descriptor => OwnedFd::from_raw_fd(descriptor),
                }
            };
            Ok(Signal { read, write: None })
        }

        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        pub(super) fn new() -> io::Result<Signal> {
            let mut ends = [0; 2];
            // SAFETY: two new descriptors that nothing else owns.
            let (read, write) = unsafe {
                if libc::pipe(ends.as_mut_ptr()) == -1 {
                    return Err(io::Error::last_os_error());
                }
                for end in ends {
                    libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK);
                    libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
                }
                (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
            };
            Ok(Signal { read, write: Some(write) })
        }

        /// The descriptor that the loop watches.
        pub(super) fn descriptor(&self) -> RawFd {
            self.read.as_raw_fd()
        }

        /// Signals that there is something to do. A full pipe has signalled already.
        pub(super) fn raise(&self) {
            let end = self.write.as_ref().unwrap_or(&self.read).as_raw_fd();
            // SAFETY: writes eight bytes of our own to an open descriptor.
            unsafe { libc::write(end, (&raw const ONE).cast(), 8) };
        }

        /// Resets the signal.
        pub(super) fn clear(&self) {
            let mut bytes = [0_u8; 64];
            // SAFETY: reads at most as many bytes as the buffer holds.
            unsafe { libc::read(self.read.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        }
    }

    static ONE: u64 = 1;
}
