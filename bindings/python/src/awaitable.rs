//! What asynchronous methods return: an answer that is ready, or a future that an event loop completes later.
//!
//! To Python it is a coroutine (`await`, `asyncio.create_task`, `asyncio.gather`, `async with`), without the cost of
//! one: a limiter in memory needs no event loop at all.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

/// An answer, now or later.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Answered(Mutex<State>);

enum State {
    Ready(Py<PyAny>),
    /// A future of the event loop.
    Later(Py<PyAny>),
    /// The same, while `send` waits for it.
    Waiting {
        future: Py<PyAny>,
        iterator: Py<PyAny>,
    },
    Closed,
}

impl Answered {
    pub(crate) fn ready(answer: Py<PyAny>) -> Answered {
        Answered(Mutex::new(State::Ready(answer)))
    }

    pub(crate) fn later(future: Py<PyAny>) -> Answered {
        Answered(Mutex::new(State::Later(future)))
    }

    /// Releases the lock before Python runs.
    fn state(&self, py: Python<'_>) -> State {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Ready(answer) => State::Ready(answer.clone_ref(py)),
            State::Later(future) => State::Later(future.clone_ref(py)),
            State::Waiting { future, iterator } => {
                State::Waiting { future: future.clone_ref(py), iterator: iterator.clone_ref(py) }
            }
            State::Closed => State::Closed,
        }
    }

    /// Drops the former state without the lock: that may run Python, and this method again.
    fn set(&self, state: State) {
        let former = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), state);
        drop(former);
    }

    /// The answer, for leaving an `async with`.
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.state(py) {
            State::Ready(answer) => Ok(answer),
            State::Later(future) | State::Waiting { future, .. } => future.call_method0(py, intern!(py, "result")),
            State::Closed => Err(closed()),
        }
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("cannot reuse an answer that was closed")
}

#[pymethods]
impl Answered {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match slf.get().state(py) {
            State::Later(future) => future.bind(py).call_method0(intern!(py, "__await__")),
            _ => Ok(slf.clone().into_any()),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.send(py, py.None())
    }

    fn send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        match self.state(py) {
            State::Ready(answer) => Err(PyStopIteration::new_err((answer,))),
            State::Waiting { iterator, .. } => iterator.call_method1(py, intern!(py, "send"), (value,)),
            State::Later(future) => {
                let iterator = future.call_method0(py, intern!(py, "__await__"))?;
                self.set(State::Waiting { future, iterator: iterator.clone_ref(py) });
                iterator.call_method1(py, intern!(py, "send"), (value,))
            }
            State::Closed => Err(closed()),
        }
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: Py<PyAny>,
        value: Option<Py<PyAny>>,
        traceback: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        if let State::Waiting { iterator, .. } = self.state(py) {
            return match (value, traceback) {
                (None, None) => iterator.call_method1(py, intern!(py, "throw"), (kind,)),
                (value, traceback) => iterator.call_method1(py, intern!(py, "throw"), (kind, value, traceback)),
            };
        }
        let kind = kind.bind(py);
        let error = match kind.cast::<pyo3::types::PyType>() {
            Ok(class) => value.map_or_else(|| class.call0(), |value| Ok(value.into_bound(py)))?,
            Err(_) => kind.clone(),
        };
        Err(PyErr::from_value(error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let State::Later(future) | State::Waiting { future, .. } = self.state(py) {
            future.call_method0(py, intern!(py, "cancel"))?;
        }
        self.set(State::Closed);
        Ok(())
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Releases what the answer holds.
    fn __aexit__(
        &self,
        py: Python<'_>,
        _kind: Py<PyAny>,
        _error: Py<PyAny>,
        _traceback: Py<PyAny>,
    ) -> PyResult<Answered> {
        self.value(py)?.call_method0(py, intern!(py, "release"))?;
        Ok(Answered::ready(py.None()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(state) = self.0.try_lock() else { return Ok(()) };
        match &*state {
            State::Ready(value) | State::Later(value) => visit.call(value),
            State::Waiting { future, iterator } => visit.call(future).and_then(|()| visit.call(iterator)),
            State::Closed => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.set(State::Closed);
    }
}
