//! One quota, any key, in this process: the shortest path to a decision.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};
use tollkeeper::{FailurePolicy, Hold};

use crate::clock::{ManualClock, seconds};
use crate::cost::Cost;
use crate::errors::raise;
use crate::quota::Quota;
use crate::text::utf8;

/// Limits each key by the same quota, in this process: `keyed("10/s burst 20").check(key)`.
#[pyfunction]
#[pyo3(signature = (quota, *, max_keys=None, on_full="local", clock=None))]
pub(crate) fn keyed(
    quota: &Bound<'_, PyAny>,
    max_keys: Option<i64>,
    on_full: &str,
    clock: Option<&Bound<'_, ManualClock>>,
) -> PyResult<Keyed> {
    let wrong =
        |problem: String| raise(quota.py(), tollkeeper_engine::Error::new(tollkeeper_engine::Kind::Config, problem));
    let keyed = tollkeeper::keyed(Quota::read(quota)?).map_err(|error| wrong(error.to_string()))?;
    let on_full = match on_full {
        "local" => FailurePolicy::Local,
        "open" => FailurePolicy::Open,
        "closed" => FailurePolicy::Closed,
        other => {
            return Err(wrong(format!("on_full: {other:?} is not supported; use local, open or closed")));
        }
    };
    let keyed = keyed.with_clock(ManualClock::or_system(clock)).on_full(on_full);
    Ok(Keyed(Box::new(match max_keys {
        Some(max_keys) => match usize::try_from(max_keys) {
            Ok(0) | Err(_) => return Err(wrong(format!("max_keys: must be at least 1, not {max_keys}"))),
            Ok(max_keys) => {
                keyed.try_with_max_keys(max_keys).map_err(|error| wrong(format!("max_keys: {error}; use fewer")))?
            }
        },
        None => keyed,
    })))
}

/// One quota for every key; `keyed` makes one. Safe to use from all threads.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Keyed(
    /// Boxed: its alignment is whole cache lines, which Python's allocator does not provide.
    Box<tollkeeper::Keyed>,
);

/// Runs code with a key of any kind: `"1"`, `b"1"` and `1` are three keys.
macro_rules! with_key {
    ($key:expr, |$known:ident| $do:expr) => {{
        let key = $key;
        if let Ok(text) = key.cast::<PyString>() {
            let text = utf8(text)?;
            let $known = &*text;
            Ok($do)
        } else if let Ok(bytes) = key.cast::<PyBytes>() {
            let $known = &(1_u8, bytes.as_bytes());
            Ok($do)
        } else if let Ok(number) = key.cast::<PyInt>() {
            match number.extract::<i128>() {
                Ok(number) => {
                    let $known = &(2_u8, number);
                    Ok($do)
                }
                // Half of all UUIDs, as a number.
                Err(_) => {
                    let digits = number.str()?.to_string();
                    let $known = &(3_u8, digits);
                    Ok($do)
                }
            }
        } else {
            Err(PyTypeError::new_err(format!("a key must be a str, bytes or int, not {}", key.get_type().name()?)))
        }
    }};
}

#[pymethods]
impl Keyed {
    /// Decides a request; cost 0 peeks. See `fastcall.rs` for the calls that are usual.
    #[pyo3(signature = (key, cost=Cost::ONE))]
    fn check(&self, key: &Bound<'_, PyAny>, cost: Cost) -> PyResult<Decision> {
        with_key!(key, |known| Decision(self.0.check_cost(known, cost.0)))
    }

    /// Decides many requests of cost 1, in order.
    fn check_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Py<PyList>> {
        let decisions = PyList::empty(keys.py());
        for key in keys.try_iter()? {
            decisions.append(self.check(&key?, Cost::ONE)?)?;
        }
        Ok(decisions.unbind())
    }

    /// The answer to a request of cost 1 now; nothing is charged.
    fn peek(&self, key: &Bound<'_, PyAny>) -> PyResult<Decision> {
        with_key!(key, |known| Decision(self.0.peek(known)))
    }

    /// Resets a key; false when there was nothing to reset.
    fn reset(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        with_key!(key, |known| self.0.reset(known))
    }

    /// Releases the slot of an admitted request: for `concurrency`. False when it was already free.
    fn release(&self, key: &Bound<'_, PyAny>, decision: &Decision) -> PyResult<bool> {
        let hold: Option<Hold> = decision.0.hold;
        with_key!(key, |known| hold.is_some_and(|hold| self.0.release(known, hold)))
    }

    /// The number of keys kept, some of which may be idle by now.
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("keyed({:?})", self.0.quota().to_string())
    }
}

impl Keyed {
    /// Decides a request by a key that is a text.
    #[inline]
    pub(crate) fn decide(&self, key: &str, cost: Cost) -> Decision {
        Decision(self.0.check_cost(key, cost.0))
    }
}

/// The answer for one key.
#[pyclass(frozen, module = "tollkeeper", freelist = 64)]
pub(crate) struct Decision(tollkeeper::Decision);

#[pymethods]
impl Decision {
    /// Whether it passes.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.is_allowed()
    }

    /// The burst of a bucket, or N.
    #[getter]
    fn limit(&self) -> u32 {
        self.0.limit
    }

    /// What is left after this decision.
    #[getter]
    fn remaining(&self) -> u32 {
        self.0.remaining
    }

    /// Seconds until the same request passes: 0.0 when it passes, None when it never can.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after().map(|wait| seconds(wait.as_micros()))
    }

    /// Seconds until the key is as if never used.
    #[getter]
    fn reset_after(&self) -> f64 {
        seconds(self.0.reset_after.as_micros())
    }

    /// Seconds that an admitted request has to wait for its turn: `leaky_bucket` only.
    #[getter]
    fn delay(&self) -> f64 {
        seconds(self.0.delay().as_micros())
    }

    fn __bool__(&self) -> bool {
        self.0.is_allowed()
    }

    fn __repr__(&self) -> String {
        let tollkeeper::Decision { limit, remaining, .. } = self.0;
        let allowed = if self.allowed() { "True" } else { "False" };
        let retry_after = self.retry_after().map_or("None".to_string(), |wait| format!("{wait:?}"));
        format!("Decision(allowed={allowed}, limit={limit}, remaining={remaining}, retry_after={retry_after})")
    }
}
