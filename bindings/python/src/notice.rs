//! Tells the application what its operator should know: mistakes in settings by `warnings`, when a limiter is made;
//! proxies that are missing in them by `logging`, when one sends requests; and what the library logs, such as a store that
//! cannot be reached, by `logging` too.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tollkeeper_engine::{Engine, Level, take_lines};

/// Warns about a setting.
pub(crate) fn warn(py: Python<'_>, problem: &str) -> PyResult<()> {
    let category = py.import("tollkeeper._errors")?.getattr("TollkeeperWarning")?;
    py.import("warnings")?.call_method1("warn", (problem, category, 2))?;
    Ok(())
}

/// Logs a warning.
pub(crate) fn log(py: Python<'_>, problem: &str) -> PyResult<()> {
    tell(py, Level::Warning, problem)
}

/// Logs what the library has logged since. Not while a lock is held: handlers of the application run.
pub(crate) fn report(py: Python<'_>, engine: &Engine) -> PyResult<()> {
    if !engine.has_lines() {
        return Ok(());
    }
    let mut outcome = Ok(());
    for line in take_lines() {
        // None is lost, also if one is interrupted.
        outcome = outcome.and(tell(py, line.level, &line.text));
    }
    outcome
}

/// Logs a line. A handler that fails is no reason to fail a request.
fn tell(py: Python<'_>, level: Level, text: &str) -> PyResult<()> {
    let method = match level {
        Level::Info => "info",
        Level::Warning => "warning",
    };
    match write(py, method, text) {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            error.write_unraisable(py, None);
            Ok(())
        }
        written => written,
    }
}

fn write(py: Python<'_>, method: &str, text: &str) -> PyResult<()> {
    // While the interpreter ends nothing can be imported, and nobody is there to be told.
    let Ok(logging) = py.import("logging") else { return Ok(()) };
    let logger = logging.call_method1("getLogger", ("tollkeeper",))?;
    logger.call_method1(method, ("%s", text))?;
    Ok(())
}
