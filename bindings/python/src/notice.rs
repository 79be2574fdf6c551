//! Tells the application what its operator should know: mistakes in settings by `warnings`, when a limiter is made;
//! proxies that are missing in them by `logging`, when one sends requests.

use pyo3::prelude::*;

/// Warns about a setting.
pub(crate) fn warn(py: Python<'_>, problem: &str) -> PyResult<()> {
    let category = py.import("tollkeeper._errors")?.getattr("TollkeeperWarning")?;
    py.import("warnings")?.call_method1("warn", (problem, category, 2))?;
    Ok(())
}

/// Logs a warning. A request never fails because of it.
pub(crate) fn log(py: Python<'_>, problem: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("tollkeeper",))?;
    logger.call_method1("warning", ("%s", problem))?;
    Ok(())
}
