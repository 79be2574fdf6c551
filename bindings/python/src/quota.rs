//! An algorithm and its numbers.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::clock::seconds;
use crate::errors::raise;
use crate::text::utf8;

/// An algorithm and its numbers, checked to be counted exactly: `Quota("10/s burst 20")`, or `Quota.per_second(10,
/// burst=20)`.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Quota(tollkeeper::Quota);

#[pymethods]
impl Quota {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Quota> {
        tollkeeper_engine::quota(text).map(Quota).map_err(|error| raise(py, error))
    }

    /// This many per second.
    #[staticmethod]
    #[pyo3(signature = (count, *, burst=None, algorithm=None))]
    fn per_second(py: Python<'_>, count: i64, burst: Option<i64>, algorithm: Option<&str>) -> PyResult<Quota> {
        Quota::of(py, format!("{count}/s"), burst, algorithm)
    }

    /// This many per minute.
    #[staticmethod]
    #[pyo3(signature = (count, *, burst=None, algorithm=None))]
    fn per_minute(py: Python<'_>, count: i64, burst: Option<i64>, algorithm: Option<&str>) -> PyResult<Quota> {
        Quota::of(py, format!("{count}/min"), burst, algorithm)
    }

    /// This many per hour.
    #[staticmethod]
    #[pyo3(signature = (count, *, burst=None, algorithm=None))]
    fn per_hour(py: Python<'_>, count: i64, burst: Option<i64>, algorithm: Option<&str>) -> PyResult<Quota> {
        Quota::of(py, format!("{count}/h"), burst, algorithm)
    }

    /// This many per day.
    #[staticmethod]
    #[pyo3(signature = (count, *, burst=None, algorithm=None))]
    fn per_day(py: Python<'_>, count: i64, burst: Option<i64>, algorithm: Option<&str>) -> PyResult<Quota> {
        Quota::of(py, format!("{count}/day"), burst, algorithm)
    }

    /// At most this many at the same time; unreleased slots expire after `hold`.
    #[staticmethod]
    #[pyo3(signature = (count, *, hold="60s"))]
    fn concurrent(py: Python<'_>, count: i64, hold: &str) -> PyResult<Quota> {
        Quota::new(py, &format!("{count} algorithm concurrency hold {hold}"))
    }

    /// The algorithm's name.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.algorithm().name()
    }

    /// N of `N per period`.
    #[getter]
    fn count(&self) -> u32 {
        self.0.count()
    }

    /// The period in seconds.
    #[getter]
    fn period(&self) -> f64 {
        seconds(self.0.period().as_micros())
    }

    /// The most that can pass at once: the burst of a bucket, or N.
    #[getter]
    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Quota({:?})", self.line())
    }

    fn __eq__(&self, other: &Quota) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

impl Quota {
    fn of(py: Python<'_>, mut text: String, burst: Option<i64>, algorithm: Option<&str>) -> PyResult<Quota> {
        if let Some(burst) = burst {
            text.push_str(&format!(" burst {burst}"));
        }
        if let Some(algorithm) = algorithm {
            text.push_str(&format!(" algorithm {algorithm}"));
        }
        Quota::new(py, &text)
    }

    /// The quota from a text or a `Quota`.
    pub(crate) fn read(quota: &Bound<'_, PyAny>) -> PyResult<tollkeeper::Quota> {
        if let Ok(quota) = quota.cast::<Quota>() {
            return Ok(quota.get().0);
        }
        let Ok(text) = quota.cast::<PyString>() else {
            let problem = format!("a quota must be a str such as \"10/s burst 20\" or a Quota, not {}", quota.repr()?);
            return Err(PyTypeError::new_err(problem));
        };
        Ok(Quota::new(quota.py(), &utf8(text)?)?.0)
    }

    /// As a one-line limit.
    pub(crate) fn line(&self) -> String {
        self.0.to_shorthand()
    }
}
