//! The engine's errors as the exceptions of `tollkeeper._errors`, with the same messages.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tollkeeper_engine::{Error, Kind};

static RULE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CONFIG: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static COST: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static REQUEST: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STORE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static OVERLOADED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ADDRESS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static USAGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for an error.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    let (cell, name) = match error.kind {
        Kind::Rule => (&RULE, "RuleError"),
        Kind::Config => (&CONFIG, "ConfigError"),
        Kind::Cost => (&COST, "CostError"),
        Kind::Request => (&REQUEST, "RequestError"),
        Kind::Store | Kind::Unreachable => (&STORE, "StoreError"),
        Kind::Overloaded => (&OVERLOADED, "OverloadedError"),
        Kind::Address => (&ADDRESS, "AddressError"),
        Kind::Usage => (&USAGE, "UsageError"),
    };
    match cell.import(py, "tollkeeper._errors", name) {
        Ok(class) => PyErr::from_type(class.clone(), error.message),
        // Only if the package is broken.
        Err(_) => PyRuntimeError::new_err(error.message),
    }
}
