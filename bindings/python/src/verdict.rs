//! The answer for a request.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use tollkeeper::Row;
use tollkeeper::http::Answer;
use tollkeeper_engine::{Ask, Checked, Engine, Estimate, Progress, Slots};

use crate::awaitable::Answered;
use crate::clock::seconds;
use crate::event_loop::{Shape, answered, wait};

/// The answer for a request.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Verdict {
    pub(crate) checked: Checked,
    /// The slots it holds until the request ends, if a rule has slots.
    slots: Mutex<Option<Slots>>,
    /// What it was charged, if that may be given back. Boxed, because few are.
    charge: Option<Box<Provisional>>,
}

/// The charge of a request that counts, unless it turns out that it does not.
struct Provisional {
    engine: Arc<Engine>,
    estimate: Mutex<Option<Estimate>>,
}

impl Verdict {
    pub(crate) fn new(checked: Checked, slots: Option<Slots>) -> Verdict {
        Verdict { checked, slots: Mutex::new(slots), charge: None }
    }

    pub(crate) fn provisional(engine: Arc<Engine>, checked: Checked, slots: Slots, estimate: Estimate) -> Verdict {
        let charge = Provisional { engine, estimate: Mutex::new(Some(estimate)) };
        Verdict { charge: Some(Box::new(charge)), ..Verdict::new(checked, Some(slots)) }
    }

    /// Gives the charge back, once. There may be none.
    fn given_back(&self) -> Option<(&Arc<Engine>, Progress)> {
        let Provisional { engine, estimate } = &**self.charge.as_ref()?;
        let estimate = estimate.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((engine, engine.ask(Ask::GiveBack(estimate))))
    }
}

#[pymethods]
impl Verdict {
    /// Whether the request may pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.checked.verdict.is_allowed()
    }

    /// The name of the rule that denies, if one does.
    #[getter]
    fn limiting(&self) -> Option<&str> {
        self.checked.verdict.limiting().map(|row| row.charge.rule.name())
    }

    /// Seconds until the same request passes: 0.0 when it passes, None when it never can.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.checked.verdict.retry_after().map(|wait| seconds(wait.as_micros()))
    }

    /// Seconds that an admitted request has to wait for its turn: `leaky_bucket` only.
    #[getter]
    fn delay(&self) -> f64 {
        seconds(self.checked.verdict.delay().as_micros())
    }

    /// What answered: `store`, `deny_cache`, `lease`, `local`, `policy` or `exception`.
    #[getter]
    fn source(&self) -> &'static str {
        self.checked.verdict.source().name()
    }

    /// Denied because the store could not answer, not because a limit was reached.
    #[getter]
    fn unavailable(&self) -> bool {
        self.checked.verdict.is_unavailable()
    }

    /// One per rule that applied, in their order.
    #[getter]
    fn rules(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let rules = PyList::empty(py);
        for row in self.checked.verdict.rows() {
            rules.append(RuleDecision(row.clone()))?;
        }
        Ok(rules.unbind())
    }

    /// The soft limits (`mode: annotate`) that the request is over, in the order of the rules.
    #[getter]
    fn annotations(&self) -> Vec<Annotation> {
        self.checked.verdict.annotations().map(Annotation::from).collect()
    }

    /// The limit headers, and `retry-after` if waiting helps; names in lower case.
    #[getter]
    fn headers(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let headers = PyDict::new(py);
        for (name, value) in self.checked.headers() {
            headers.set_item(name, value)?;
        }
        Ok(headers.unbind())
    }

    /// Status, headers and body for a denied request.
    #[pyo3(signature = (limits=true))]
    fn _denial<'py>(&self, py: Python<'py>, limits: bool) -> PyResult<Bound<'py, PyTuple>> {
        let mut answer = self.checked.deny();
        if !limits {
            for name in self.checked.style.headers_for(&self.checked.verdict, self.checked.now).keys() {
                answer.headers.remove(name);
            }
        }
        denial(py, &answer)
    }

    /// Releases the slots: the request has ended.
    fn _release(&self) {
        drop(self.slots.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Gives back what the request was charged: it does not count. Without that, it does. An awaitable.
    fn _give_back(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.given_back() {
            Some((engine, progress)) => answered(py, engine, progress, Shape::Plain),
            None => Ok(Answered::ready(py.None()).into_pyobject(py)?.into_any().unbind()),
        }
    }

    /// The same, blocking this thread.
    fn _give_back_sync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.given_back() {
            Some((engine, progress)) => wait(py, engine, progress, Shape::Plain),
            None => Ok(py.None()),
        }
    }

    fn __bool__(&self) -> bool {
        self.allowed()
    }

    fn __repr__(&self) -> String {
        let verdict = &self.checked.verdict;
        if verdict.is_allowed() {
            let rules: Vec<&str> = verdict.rows().iter().map(|row| row.charge.rule.name()).collect();
            return format!("Verdict(allowed=True, rules={rules:?})");
        }
        let retry_after = self.retry_after().map_or("None".to_string(), |wait| format!("{wait:?}"));
        format!("Verdict(allowed=False, limiting={:?}, retry_after={retry_after})", self.limiting().unwrap_or_default())
    }
}

/// A soft limit that a request is over.
#[pyclass(frozen, get_all, module = "tollkeeper")]
pub(crate) struct Annotation {
    /// The rule's name.
    rule: String,
    /// The burst of a bucket, or N.
    limit: u32,
    /// How much of the request's cost did not fit.
    over_by: u32,
    /// Seconds until the request would have fit; None if it never would.
    retry_after: Option<f64>,
}

impl From<tollkeeper::Annotation<'_>> for Annotation {
    fn from(annotation: tollkeeper::Annotation<'_>) -> Annotation {
        let tollkeeper::Annotation { rule, limit, over_by, retry_after } = annotation;
        let retry_after = retry_after.map(|wait| seconds(wait.as_micros()));
        Annotation { rule: rule.to_string(), limit, over_by, retry_after }
    }
}

#[pymethods]
impl Annotation {
    fn __repr__(&self) -> String {
        let Annotation { rule, limit, over_by, .. } = self;
        format!("Annotation(rule={rule:?}, limit={limit}, over_by={over_by})")
    }
}

/// An HTTP request that was refused without a decision, because its identity is contradictory or missing.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Refusal(pub(crate) Answer);

#[pymethods]
impl Refusal {
    /// Always false.
    #[getter]
    fn allowed(&self) -> bool {
        false
    }

    #[pyo3(signature = (limits=true))]
    fn _denial<'py>(&self, py: Python<'py>, limits: bool) -> PyResult<Bound<'py, PyTuple>> {
        let _ = limits;
        denial(py, &self.0)
    }

    fn _release(&self) {}
}

/// `(status, [(name, value)], body)`, in bytes as in ASGI.
fn denial<'py>(py: Python<'py>, answer: &Answer) -> PyResult<Bound<'py, PyTuple>> {
    let headers = PyList::empty(py);
    for (name, value) in &answer.headers {
        headers.append((PyBytes::new(py, name.as_str().as_bytes()), PyBytes::new(py, value.as_bytes())))?;
    }
    (answer.status.as_u16(), headers, PyBytes::new(py, &answer.body)).into_pyobject(py)
}

/// What one rule says.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct RuleDecision(Row);

#[pymethods]
impl RuleDecision {
    /// The rule's name.
    #[getter]
    fn rule(&self) -> &str {
        self.0.charge.rule.name()
    }

    /// The rule's label.
    #[getter]
    fn scope(&self) -> Option<&str> {
        self.0.charge.rule.scope()
    }

    /// Which of the rule's buckets.
    #[getter]
    fn key(&self) -> &str {
        &self.0.charge.key.value
    }

    /// Whether this rule alone lets it pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.decision.is_allowed()
    }

    /// Whether the rule only counts and never denies.
    #[getter]
    fn shadow(&self) -> bool {
        self.0.charge.rule.is_shadow()
    }

    /// The burst of a bucket, or N.
    #[getter]
    fn limit(&self) -> u32 {
        self.0.decision.limit
    }

    /// What is left after this request.
    #[getter]
    fn remaining(&self) -> u32 {
        self.0.decision.remaining
    }

    /// Seconds until this rule lets the same request pass: 0.0 when it does, None when it never can.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.decision.retry_after().map(|wait| seconds(wait.as_micros()))
    }

    /// Seconds until the bucket is full again.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.decision.reset_after.as_micros())
    }

    /// Seconds that an admitted request has to wait for its turn: `leaky_bucket` only.
    #[getter]
    fn delay(&self) -> f64 {
        seconds(self.0.decision.delay().as_micros())
    }

    /// What answered.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source.name()
    }

    /// `block`, `allow` or `grant`, if an exception for this key is in force.
    #[getter]
    fn exception(&self) -> Option<&'static str> {
        self.0.charge.exception().map(|exception| exception.kind.name())
    }

    fn __repr__(&self) -> String {
        let Row { decision, .. } = &self.0;
        let allowed = if decision.is_allowed() { "True" } else { "False" };
        format!(
            "RuleDecision(rule={:?}, key={:?}, allowed={allowed}, remaining={})",
            self.rule(),
            self.key(),
            decision.remaining
        )
    }
}
