//! Costs as Python gives them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// A whole number; 0 peeks. PyO3's own error for a negative number does not say which argument is wrong.
#[derive(Clone, Copy)]
pub(crate) struct Cost(pub(crate) u32);

impl Cost {
    pub(crate) const ONE: Cost = Cost(1);
}

impl<'a, 'py> FromPyObject<'a, 'py> for Cost {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Cost> {
        if let Ok(cost) = value.extract::<u32>() {
            return Ok(Cost(cost));
        }
        let problem = format!("cost: {} is not a whole number from 0 to {}", value.repr()?, u32::MAX);
        Err(match value.is_instance_of::<PyInt>() {
            true => PyValueError::new_err(problem),
            false => PyTypeError::new_err(problem),
        })
    }
}
