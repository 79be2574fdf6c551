//! What a request holds until it ends: slots, and unsettled estimates.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;
use tollkeeper::Settled;
use tollkeeper_engine::{Ask, Checked, Engine, Error, Estimate, Kind, Slots};

use crate::clock::seconds;
use crate::cost::Cost;
use crate::errors::raise;
use crate::event_loop::{Shape, answered, wait};
use crate::request::pairs;
use crate::verdict::Verdict;

/// The slots of a request: `async with limiter.acquire({...}) as permit`, or `with limiter.acquire_sync({...}) as
/// permit`. The permit of a denied request is empty: check `permit.allowed`.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Permit {
    verdict: Py<Verdict>,
    slots: Mutex<Option<Slots>>,
}

impl Permit {
    pub(crate) fn new(py: Python<'_>, checked: Checked, slots: Slots) -> PyResult<Permit> {
        Ok(Permit { verdict: Py::new(py, Verdict::new(checked, None))?, slots: Mutex::new(Some(slots)) })
    }
}

#[pymethods]
impl Permit {
    /// The verdict.
    #[getter]
    fn verdict(&self, py: Python<'_>) -> Py<Verdict> {
        self.verdict.clone_ref(py)
    }

    /// Whether the request may pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.verdict.get().checked.verdict.is_allowed()
    }

    /// Releases the slots. Calling it again does nothing.
    fn release(&self) {
        drop(self.slots.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn __bool__(&self) -> bool {
        self.allowed()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) {
        self.release();
    }
}

/// An estimate that was charged, until `settle` gives the actual cost. Without that the estimate stays charged; slots
/// are released in any case.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Reservation {
    engine: Arc<Engine>,
    verdict: Py<Verdict>,
    estimate: Mutex<Option<Estimate>>,
}

impl Reservation {
    pub(crate) fn new(
        py: Python<'_>,
        engine: Arc<Engine>,
        checked: Checked,
        estimate: Estimate,
    ) -> PyResult<Reservation> {
        let verdict = Py::new(py, Verdict::new(checked, None))?;
        Ok(Reservation { engine, verdict, estimate: Mutex::new(Some(estimate)) })
    }

    fn ask(&self, py: Python<'_>, cost: Option<Cost>, attributes: Option<&Bound<'_, PyAny>>) -> PyResult<Ask> {
        let attributes = attributes.map_or_else(|| Ok(Vec::new()), pairs)?;
        let estimate = self.estimate.lock().unwrap_or_else(PoisonError::into_inner).take();
        let settled = || raise(py, Error::new(Kind::Usage, "the reservation has already been settled or released"));
        Ok(Ask::Settle(estimate.ok_or_else(settled)?, cost.map(|cost| cost.0), attributes))
    }
}

#[pymethods]
impl Reservation {
    /// The verdict on the estimate.
    #[getter]
    fn verdict(&self, py: Python<'_>) -> Py<Verdict> {
        self.verdict.clone_ref(py)
    }

    /// Whether the request may pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.verdict.get().checked.verdict.is_allowed()
    }

    /// Corrects the estimate to the actual usage: a cost, attributes that carry costs, or both.
    #[pyo3(signature = (cost=None, attributes=None))]
    fn settle(&self, py: Python<'_>, cost: Option<Cost>, attributes: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        answered(py, &self.engine, self.engine.ask(self.ask(py, cost, attributes)?), Shape::Plain)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (cost=None, attributes=None))]
    fn settle_sync(
        &self,
        py: Python<'_>,
        cost: Option<Cost>,
        attributes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        wait(py, &self.engine, self.engine.ask(self.ask(py, cost, attributes)?), Shape::Plain)
    }

    /// Leaves the estimate charged, and releases slots.
    fn release(&self) {
        drop(self.estimate.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn __bool__(&self) -> bool {
        self.allowed()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) {
        self.release();
    }
}

/// The settlement of one rule's estimate.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Settlement(Settled);

impl Settlement {
    pub(crate) fn list(py: Python<'_>, settlement: tollkeeper::Settlement) -> PyResult<Py<PyList>> {
        let rows = PyList::empty(py);
        for row in settlement.rows {
            rows.append(Settlement(row))?;
        }
        Ok(rows.unbind())
    }
}

#[pymethods]
impl Settlement {
    /// The rule's name.
    #[getter]
    fn rule(&self) -> &str {
        self.0.charge.rule.name()
    }

    /// Which of its buckets.
    #[getter]
    fn key(&self) -> &str {
        &self.0.charge.key.value
    }

    /// The actual cost.
    #[getter]
    fn cost(&self) -> u32 {
        self.0.charge.cost
    }

    /// The charged estimate.
    #[getter]
    fn reserved(&self) -> u32 {
        self.0.reserved
    }

    /// How much of it was refunded.
    #[getter]
    fn refunded(&self) -> u32 {
        self.0.refunded
    }

    /// What is left now.
    #[getter]
    fn remaining(&self) -> u32 {
        self.0.decision.remaining
    }

    /// Seconds until the bucket is full again.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.decision.reset_after.as_micros())
    }
}
