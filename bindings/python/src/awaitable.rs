//! What asynchronous methods return: an answer that is ready, or a future that an event loop completes later.
//!
//! To Python it is a coroutine (`await`, `asyncio.create_task`, `asyncio.gather`, `async with`), without the cost of
//! one: a limiter in memory needs no event loop at all.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::later::Later;

/// An answer, now or later.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Answered(Mutex<State>);

enum State {
    Ready(Py<PyAny>),
    /// It arrives in the event loop.
    Later(Py<Later>),
    Closed,
}

impl Answered {
    pub(crate) fn ready(answer: Py<PyAny>) -> Answered {
        Answered(Mutex::new(State::Ready(answer)))
    }

    pub(crate) fn later(later: Py<Later>) -> Answered {
        Answered(Mutex::new(State::Later(later)))
    }

    /// Releases the lock before Python runs.
    fn state(&self, py: Python<'_>) -> State {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Ready(answer) => State::Ready(answer.clone_ref(py)),
            State::Later(later) => State::Later(later.clone_ref(py)),
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
            State::Later(later) => later.get().result(py),
            State::Closed => Err(closed()),
        }
    }
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("cannot reuse an answer that was closed")
}

#[pymethods]
impl Answered {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.state(py) {
            State::Ready(answer) => Err(PyStopIteration::new_err((answer,))),
            State::Later(later) => Later::step(later.bind(py)),
            State::Closed => Err(closed()),
        }
    }

    fn send(&self, py: Python<'_>, _value: Py<PyAny>) -> PyResult<Py<PyAny>> {
        self.__next__(py)
    }

    #[pyo3(signature = (kind, value=None, _traceback=None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: Py<PyAny>,
        value: Option<Py<PyAny>>,
        _traceback: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let kind = kind.bind(py);
        let error = match kind.cast::<pyo3::types::PyType>() {
            Ok(class) => value.map_or_else(|| class.call0(), |value| Ok(value.into_bound(py)))?,
            Err(_) => kind.clone(),
        };
        Err(PyErr::from_value(error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let State::Later(later) = self.state(py) {
            Later::cancel(later.bind(py), None)?;
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
            State::Ready(answer) => visit.call(answer),
            State::Later(later) => visit.call(later),
            State::Closed => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.set(State::Closed);
    }
}
