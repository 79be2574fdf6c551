//! Exceptions for single keys: blocked, allowed, or with a limit of their own.

use pyo3::prelude::*;
use pyo3::types::PyString;
use tollkeeper::{Exception, ExceptionKind, Grant, NamedKey, Span, Timestamp, parse_span};
use tollkeeper_engine::{Ask, End, Error, Kind};

use crate::clock::seconds;
use crate::errors::raise;
use crate::text::utf8;

/// What a caller gives for an exception.
pub(crate) struct Given<'a, 'py> {
    pub(crate) rule: &'a str,
    pub(crate) key: &'a str,
    pub(crate) by: Option<&'a str>,
    pub(crate) duration: Option<&'a Bound<'py, PyAny>>,
    pub(crate) until: Option<&'a Bound<'py, PyAny>>,
    pub(crate) reason: Option<String>,
    pub(crate) made_by: Option<String>,
}

impl Given<'_, '_> {
    pub(crate) fn ask(self, py: Python<'_>, kind: ExceptionKind) -> PyResult<Ask> {
        let Given { rule, key, by, duration, until, reason, made_by } = self;
        let end = End::of(duration.map(span).transpose()?, until.map(timestamp).transpose()?);
        let exception = Exception { reason, made_by, ..Exception::new(rule, named_key(key, by), kind) };
        Ok(Ask::Except(Box::new(exception), end.map_err(|error| raise(py, error))?))
    }
}

/// A key, and the attribute that it is for.
pub(crate) fn named_key(key: &str, by: Option<&str>) -> NamedKey {
    NamedKey::from(key).by(by.unwrap_or_default())
}

/// A duration: seconds, a text such as `1h`, or a timedelta.
fn span(duration: &Bound<'_, PyAny>) -> PyResult<Span> {
    let wrong = |problem: String| raise(duration.py(), Error::new(Kind::Usage, format!("duration: {problem}")));
    if let Ok(text) = duration.cast::<PyString>() {
        return parse_span(&utf8(text)?).map_err(|error| wrong(error.to_string()));
    }
    let Ok(seconds) = number(duration, "total_seconds") else {
        let shown = duration.repr()?;
        return Err(wrong(format!(
            "{shown} is not a duration; write seconds, a string such as \"1h\", or a timedelta"
        )));
    };
    micros(seconds).map(Span::from_micros).ok_or_else(|| {
        wrong(format!("{seconds} is not a duration; write seconds, a string such as \"1h\", or a timedelta"))
    })
}

/// A time: a datetime, or seconds since the epoch.
fn timestamp(until: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    let Ok(seconds) = number(until, "timestamp") else {
        let problem = format!("until: {} is not a time; give a datetime, or seconds since the epoch", until.repr()?);
        return Err(raise(until.py(), Error::new(Kind::Usage, problem)));
    };
    micros(seconds).map(Timestamp::from_micros).ok_or_else(|| {
        let problem = format!("until: {seconds} is not a time; give a datetime, or seconds since the epoch");
        raise(until.py(), Error::new(Kind::Usage, problem))
    })
}

/// A number, or an object that has a method to be read as one.
fn number(value: &Bound<'_, PyAny>, method: &str) -> PyResult<f64> {
    if value.hasattr(method)? { value.call_method0(method)?.extract() } else { value.extract() }
}

fn micros(seconds: f64) -> Option<u64> {
    let micros = (seconds * 1e6).round();
    (micros >= 0.0 && micros <= Span::MAX.as_micros() as f64).then_some(micros as u64)
}

/// An exception in force for a key of a rule. It is an entry in the limiter, not an error to raise.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct KeyException(pub(crate) Exception);

#[pymethods]
impl KeyException {
    /// The rule's name, or `*` for every rule that uses this key.
    #[getter]
    fn rule(&self) -> &str {
        self.0.rule.as_deref().unwrap_or("*")
    }

    /// The key.
    #[getter]
    fn key(&self) -> &str {
        &self.0.key
    }

    /// The attribute that the key is for, if the rule's key has alternatives.
    #[getter]
    fn by(&self) -> Option<String> {
        (!self.0.by.is_empty()).then(|| self.0.by.to_string())
    }

    /// `block`, `allow` or `grant`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// Of a grant: the limit.
    #[getter]
    fn limit(&self) -> Option<&str> {
        self.grant().map(|grant| grant.limit.as_str())
    }

    /// Of a grant: the burst, if one was given.
    #[getter]
    fn burst(&self) -> Option<u32> {
        self.grant().and_then(|grant| grant.burst)
    }

    /// When it was made.
    #[getter]
    fn since(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        datetime(py, self.0.since)
    }

    /// When it ends; None if it has no end.
    #[getter]
    fn until(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.until.map(|until| datetime(py, until)).transpose()
    }

    /// Why, if a reason was given.
    #[getter]
    fn reason(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }

    /// Who made it, if that was given.
    #[getter]
    fn made_by(&self) -> Option<&str> {
        self.0.made_by.as_deref()
    }

    fn __repr__(&self) -> String {
        let limit = self.grant().map_or_else(String::new, |grant| format!(", limit={:?}", grant.to_string()));
        format!("KeyException(rule={:?}, key={:?}, kind={:?}{limit})", self.rule(), self.key(), self.kind())
    }
}

impl KeyException {
    fn grant(&self) -> Option<&Grant> {
        match &self.0.kind {
            ExceptionKind::Grant(grant) => Some(grant),
            ExceptionKind::Block | ExceptionKind::Allow => None,
        }
    }
}

/// An aware datetime in UTC.
fn datetime(py: Python<'_>, at: Timestamp) -> PyResult<Py<PyAny>> {
    let module = py.import("datetime")?;
    let utc = module.getattr("timezone")?.getattr("utc")?;
    let arguments = (seconds(at.as_micros()), utc);
    Ok(module.getattr("datetime")?.call_method1("fromtimestamp", arguments)?.unbind())
}
