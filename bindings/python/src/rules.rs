//! Rules as Python writes them: dicts, lines and quotas.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::errors::raise;
use crate::quota::Quota;
use crate::text::utf8;

/// Rules as JSON; lines are rules too.
pub(crate) fn written<'py>(rules: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = rules.py();
    // The elements of a dict are its names, and those of a text are its letters.
    let single = rules.is_instance_of::<PyString>() || rules.is_instance_of::<PyDict>();
    let Some(each) = (!single).then(|| rules.try_iter().ok()).flatten() else {
        return Err(PyTypeError::new_err("rules must be a list of dicts or of strings such as \"100/min by ip\""));
    };
    let all = PyList::empty(py);
    for (index, rule) in each.enumerate() {
        let rule = rule?;
        let line = match rule.cast::<Quota>() {
            Ok(quota) => Some(quota.get().line()),
            Err(_) => rule.cast::<PyString>().ok().map(|text| utf8(text).map(|text| text.into_owned())).transpose()?,
        };
        match line {
            Some(line) => {
                let name = if index == 0 { "limit".to_string() } else { format!("limit-{}", index + 1) };
                let spec = tollkeeper_engine::rule(&name, &line, None).map_err(|error| raise(py, error))?;
                let text = serde_json::to_string(&spec).map_err(|error| PyValueError::new_err(error.to_string()))?;
                all.append(py.import("json")?.call_method1("loads", (text,))?)?;
            }
            None => all.append(rule)?,
        }
    }
    Ok(all)
}

/// A value as JSON.
pub(crate) fn json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.py().import("json")?.call_method1("dumps", (value,))?.extract()
}
