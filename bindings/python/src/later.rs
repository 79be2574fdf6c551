//! An answer that an event loop waits for.
//!
//! It is what asyncio calls a future-like object: a task that gets one from a coroutine waits for it. asyncio's own future
//! would start its tasks in the loop's next turn, which costs a system call and half as much as the rest of the answer; this
//! one continues them in the turn in which the answer arrives.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::IntoPyDict;
use pyo3::{PyTraverseError, PyVisit, intern};

static CANCELLED_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static COPY_CONTEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A future of one event loop.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Later {
    event_loop: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    callbacks: Vec<Callback>,
    /// By which a task knows that a coroutine waits for this, and did not just yield it.
    is_blocking: bool,
}

enum Outcome {
    Answer(Py<PyAny>),
    /// As an object that the garbage collector can follow: its traceback leads to whoever waited.
    Error(Py<PyBaseException>),
    /// By whoever waited, with a message for them.
    Cancelled(Option<Py<PyAny>>),
}

impl Outcome {
    fn of(py: Python<'_>, answer: PyResult<Py<PyAny>>) -> Outcome {
        answer.map_or_else(|error| Outcome::Error(error.into_value(py)), Outcome::Answer)
    }
}

/// What to call when it is done, and in which context.
struct Callback {
    call: Py<PyAny>,
    context: Py<PyAny>,
}

impl Later {
    pub(crate) fn new(event_loop: Py<PyAny>) -> Later {
        Later { event_loop, state: Mutex::default() }
    }

    pub(crate) fn event_loop<'l, 'py>(&'l self, py: Python<'py>) -> &'l Bound<'py, PyAny> {
        self.event_loop.bind(py)
    }

    /// Completes it and continues the tasks that wait for it. Only the loop itself may call this: no task may be running. Does
    /// nothing if nobody waits any more.
    pub(crate) fn complete(slf: &Bound<'_, Self>, answer: impl FnOnce() -> PyResult<Py<PyAny>>) -> PyResult<()> {
        if slf.get().done() {
            return Ok(());
        }
        let outcome = Outcome::of(slf.py(), answer());
        let mut outcomes = Ok(());
        for Callback { call, context } in slf.get().end(outcome) {
            let called = match outcomes {
                Ok(()) => context.call_method1(slf.py(), intern!(slf.py(), "run"), (call, slf)).map(drop),
                // An error is that of a loop which is about to end. The other tasks are for it to continue, or not.
                Err(_) => soon(slf, call, context),
            };
            outcomes = outcomes.and(called);
        }
        outcomes
    }

    /// Completes it. Tasks that wait for it continue in the next turn of the loop, so any code may call this.
    pub(crate) fn complete_soon(slf: &Bound<'_, Self>, outcome: PyResult<Py<PyAny>>) -> PyResult<()> {
        if !slf.get().done() {
            Later::end_soon(slf, Outcome::of(slf.py(), outcome))?;
        }
        Ok(())
    }

    fn end_soon(slf: &Bound<'_, Self>, outcome: Outcome) -> PyResult<()> {
        let callbacks = slf.get().end(outcome);
        callbacks.into_iter().try_for_each(|Callback { call, context }| soon(slf, call, context))
    }

    fn end(&self, outcome: Outcome) -> Vec<Callback> {
        let mut state = self.state();
        state.outcome = Some(outcome);
        std::mem::take(&mut state.callbacks)
    }

    /// Never held while Python runs.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an iterator gives next: itself until it is done, and then the answer as the end of the iteration.
    pub(crate) fn step(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        if slf.get().done() {
            return Err(PyStopIteration::new_err((slf.get().result(slf.py())?,)));
        }
        slf.get().state().is_blocking = true;
        Ok(slf.clone().into_any().unbind())
    }
}

/// Has the loop call it in its next turn.
fn soon(later: &Bound<'_, Later>, call: Py<PyAny>, context: Py<PyAny>) -> PyResult<()> {
    let py = later.py();
    let context = [(intern!(py, "context"), context)].into_py_dict(py)?;
    later.get().event_loop.call_method(py, intern!(py, "call_soon"), (call, later), Some(&context)).map(drop)
}

#[pymethods]
impl Later {
    #[getter(_asyncio_future_blocking)]
    fn is_blocking(&self) -> bool {
        self.state().is_blocking
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, is_blocking: bool) {
        self.state().is_blocking = is_blocking;
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    pub(crate) fn done(&self) -> bool {
        self.state().outcome.is_some()
    }

    fn cancelled(&self) -> bool {
        matches!(self.state().outcome, Some(Outcome::Cancelled(_)))
    }

    pub(crate) fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let error = match &self.state().outcome {
            Some(Outcome::Answer(answer)) => return Ok(answer.clone_ref(py)),
            Some(Outcome::Error(error)) => Some(error.clone_ref(py)),
            Some(Outcome::Cancelled(_)) => None,
            None => return Err(PyRuntimeError::new_err("the answer has not arrived yet")),
        };
        let error = error.map_or_else(|| self.cancelled_error(py), |error| Ok(error.into_bound(py).into_any()))?;
        Err(PyErr::from_value(error))
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyBaseException>>> {
        match &self.state().outcome {
            Some(Outcome::Answer(_)) => return Ok(None),
            Some(Outcome::Error(error)) => return Ok(Some(error.clone_ref(py))),
            _ => {}
        }
        // It was cancelled, or has not arrived.
        self.result(py).map(|_| None)
    }

    /// This and the next are what `asyncio.gather` asks a cancelled future for.
    #[pyo3(name = "_make_cancelled_error")]
    fn cancelled_error<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = CANCELLED_ERROR.import(py, "asyncio", "CancelledError")?;
        self.cancel_message(py).map_or_else(|| class.call0(), |message| class.call1((message,)))
    }

    #[getter(_cancel_message)]
    fn cancel_message(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.state().outcome {
            Some(Outcome::Cancelled(message)) => message.as_ref().map(|message| message.clone_ref(py)),
            _ => None,
        }
    }

    #[pyo3(signature = (call, *, context=None))]
    fn add_done_callback(slf: &Bound<'_, Self>, call: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let context = match context {
            Some(context) => context,
            None => COPY_CONTEXT.import(slf.py(), "contextvars", "copy_context")?.call0()?.unbind(),
        };
        if slf.get().done() {
            return soon(slf, call, context);
        }
        slf.get().state().callbacks.push(Callback { call, context });
        Ok(())
    }

    fn remove_done_callback(&self, py: Python<'_>, call: &Bound<'_, PyAny>) -> PyResult<usize> {
        let calls: Vec<Py<PyAny>> = self.state().callbacks.iter().map(|callback| callback.call.clone_ref(py)).collect();
        let mut equal = Vec::new();
        // To compare may run Python, which may fail, and may add callbacks meanwhile: none of them may be lost.
        for candidate in calls {
            if candidate.bind(py).eq(call)? {
                equal.push(candidate);
            }
        }
        let is_equal = |callback: &mut Callback| equal.iter().any(|equal| equal.is(&callback.call));
        let removed: Vec<Callback> = self.state().callbacks.extract_if(.., is_equal).collect();
        Ok(removed.len())
    }

    /// The caller no longer waits. Whether it was waiting.
    #[pyo3(signature = (msg=None))]
    pub(crate) fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        if slf.get().done() {
            return Ok(false);
        }
        Later::end_soon(slf, Outcome::Cancelled(msg))?;
        Ok(true)
    }

    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Later::step(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        for Callback { call, context } in &state.callbacks {
            visit.call(call)?;
            visit.call(context)?;
        }
        match &state.outcome {
            Some(Outcome::Answer(value) | Outcome::Cancelled(Some(value))) => visit.call(value),
            Some(Outcome::Error(error)) => visit.call(error),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        let former = std::mem::take(&mut *self.state());
        drop(former);
    }
}
