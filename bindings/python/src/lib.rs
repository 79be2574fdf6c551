//! The extension module behind the Python package `tollkeeper`. The library makes every decision; this module adds
//! what Python needs: types, exceptions, event loops, and HTTP requests from ASGI and WSGI.
//!
//! Importing it starts nothing: the I/O thread for Redis starts with the first request that needs it.

mod awaitable;
mod clock;
mod cost;
mod errors;
mod event_loop;
mod exception;
mod fastcall;
mod headers;
mod hold;
mod keyed;
mod later;
mod limiter;
mod notice;
mod quota;
mod request;
mod rules;
mod text;
mod verdict;

use pyo3::prelude::*;

// No free-threaded interpreter has run the tests yet: there it brings the lock back.
#[pymodule(gil_used = true)]
mod _tollkeeper {
    #[pymodule_export]
    use super::awaitable::Answered;
    #[pymodule_export]
    use super::clock::ManualClock;
    #[pymodule_export]
    use super::exception::KeyException;
    #[pymodule_export]
    use super::headers::{Collector, Sender};
    #[pymodule_export]
    use super::hold::{Permit, Reservation, Settlement};
    #[pymodule_export]
    use super::keyed::{Decision, Keyed, keyed};
    #[pymodule_export]
    use super::limiter::Limiter;
    #[pymodule_export]
    use super::quota::Quota;
    #[pymodule_export]
    use super::verdict::{Annotation, Refusal, RuleDecision, Verdict};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        fastcall::install(&module.py().get_type::<Keyed>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
