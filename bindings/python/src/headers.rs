//! Limit headers on their way to the client. Each layer that limits a request (middleware, then a route) adds its
//! verdict to the outermost one, which writes the headers of all of them once, so that none overwrites another's.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use tollkeeper::HeaderStyle;
use tollkeeper_engine::Checked;

use crate::verdict::Verdict;

/// The verdicts on one request so far.
#[derive(Default)]
struct Said(Mutex<Option<Checked>>);

impl Said {
    fn add(&self, checked: &Checked) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *said = Some(said.as_ref().map_or_else(|| checked.clone(), |before| before.and(checked)));
    }

    /// The verdict of all layers; none before the first.
    fn verdict(&self) -> Option<Verdict> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map(|checked| Verdict::new(checked, None))
    }

    /// The limit headers of all layers, and whether other headers of the same names may stay beside them.
    fn headers(&self) -> (Vec<(String, String)>, bool) {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // `retry-after` belongs to a denial, and comes with its response.
            Some(checked) => {
                let mut headers = checked.headers();
                headers.retain(|(name, _)| name != "retry-after");
                (headers, checked.style.headers == HeaderStyle::Draft11)
            }
            None => (Vec::new(), true),
        }
    }
}

/// An ASGI `send` that adds limit headers to the response.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Sender {
    send: Py<PyAny>,
    said: Said,
}

#[pymethods]
impl Sender {
    #[new]
    fn new(send: Py<PyAny>, verdict: &Bound<'_, Verdict>) -> Sender {
        let sender = Sender { send, said: Said::default() };
        sender.said.add(&verdict.get().checked);
        sender
    }

    /// Adds another layer's verdict.
    fn add(&self, verdict: &Bound<'_, Verdict>) {
        self.said.add(&verdict.get().checked);
    }

    /// The verdict of all layers.
    #[getter]
    fn verdict(&self) -> Option<Verdict> {
        self.said.verdict()
    }

    fn __call__<'py>(&self, message: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        let py = message.py();
        let send = self.send.bind(py);
        let Some(kind) = message.get_item(intern!(py, "type"))? else { return send.call1((message,)) };
        let starts = ["http.response.start", "websocket.accept", "websocket.http.response.start"];
        if !starts.iter().any(|start| kind.eq(*start).unwrap_or(false)) {
            return send.call1((message,));
        }
        let (limits, may_repeat) = self.said.headers();
        let headers = PyList::empty(py);
        let mut present: Vec<Vec<u8>> = Vec::new();
        if let Some(before) = message.get_item(intern!(py, "headers"))? {
            for field in before.try_iter()? {
                let field = field?;
                if !may_repeat && let Ok(name) = field.get_item(0)?.cast::<PyBytes>() {
                    present.push(name.as_bytes().to_ascii_lowercase());
                }
                headers.append(field)?;
            }
        }
        for (name, value) in limits {
            if !present.iter().any(|before| before == name.as_bytes()) {
                headers.append((PyBytes::new(py, name.as_bytes()), PyBytes::new(py, value.as_bytes())))?;
            }
        }
        // The application may reuse its message.
        let message = message.copy()?;
        message.set_item(intern!(py, "headers"), headers)?;
        send.call1((message,))
    }
}

/// Limit headers for hosts without ASGI.
#[pyclass(frozen, module = "tollkeeper")]
pub(crate) struct Collector(Said);

#[pymethods]
impl Collector {
    #[new]
    fn new() -> Collector {
        Collector(Said::default())
    }

    /// Adds a layer's verdict.
    fn add(&self, verdict: &Bound<'_, Verdict>) {
        self.0.add(&verdict.get().checked);
    }

    /// The verdict of all layers.
    #[getter]
    fn verdict(&self) -> Option<Verdict> {
        self.0.verdict()
    }

    /// The limit headers of all layers.
    fn headers(&self) -> Vec<(String, String)> {
        self.0.headers().0
    }

    /// A response's headers with the limit headers of all layers.
    fn apply<'py>(&self, headers: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(headers.py());
        let (limits, may_repeat) = self.0.headers();
        let mut present: Vec<String> = Vec::new();
        for field in headers.try_iter()? {
            let field = field?;
            if !may_repeat {
                present.push(field.get_item(0)?.extract::<String>()?.to_ascii_lowercase());
            }
            all.append(field)?;
        }
        for (name, value) in limits {
            if !present.contains(&name) {
                all.append((name, value))?;
            }
        }
        Ok(all)
    }
}
