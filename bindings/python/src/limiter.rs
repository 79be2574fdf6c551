//! Rules over a store.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use tollkeeper::{Descriptor, Inspected};
use tollkeeper_engine::{Ask, Engine, Head, Needs, Progress, Subject};

use crate::clock::{ManualClock, seconds, span_text};
use crate::errors::raise;
use crate::event_loop::{Shape, answered, later, python, wait};
use crate::quota::Quota;
use crate::text::utf8;

/// Decides requests by rules that can change while it runs. Creating one opens no connection and starts no thread; a
/// forked process connects on its own.
#[pyclass(frozen, module = "tollkeeper", weakref)]
pub(crate) struct Limiter(Arc<Engine>);

#[pymethods]
impl Limiter {
    /// From a rules file, the one that the service reads.
    #[staticmethod]
    #[pyo3(signature = (path, *, store=None, clock=None))]
    fn from_file(
        py: Python<'_>,
        path: PathBuf,
        store: Option<&str>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<Py<Limiter>> {
        Limiter::made(py, Engine::from_file(&path, store, ManualClock::or_system(clock)))
    }

    /// From code: each rule is a dict as in the rules file, or a line such as "100/min burst 20 by header.x-api-key|ip".
    #[staticmethod]
    #[pyo3(signature = (rules, *, store="memory:", timeout=None, max_keys=None, namespace=None, trusted_proxies=None,
                        client_address=None, ipv6_prefix=None, headers=None, identify=None, deny_status=None, clock=None, _rules_from=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn from_rules(
        py: Python<'_>,
        rules: &Bound<'_, PyAny>,
        store: &str,
        timeout: Option<&Bound<'_, PyAny>>,
        max_keys: Option<usize>,
        namespace: Option<&str>,
        trusted_proxies: Option<&Bound<'_, PyAny>>,
        client_address: Option<&str>,
        ipv6_prefix: Option<u8>,
        headers: Option<&str>,
        identify: Option<&Bound<'_, PyAny>>,
        deny_status: Option<u16>,
        clock: Option<&Bound<'_, ManualClock>>,
        _rules_from: Option<(String, Option<PathBuf>)>,
    ) -> PyResult<Py<Limiter>> {
        let place = PyDict::new(py);
        place.set_item("url", store)?;
        place.set_item("timeout", timeout.map(span_text).transpose()?)?;
        if let Some(max_keys) = max_keys {
            place.set_item("max_keys", max_keys)?;
        }
        place.set_item("namespace", namespace)?;
        let settings = PyDict::new(py);
        settings.set_item("store", place)?;
        settings.set_item("rules", written(rules)?)?;
        if let Some((url, snapshot)) = _rules_from {
            settings.set_item("rules_from", url)?;
            settings.set_item("rules_snapshot", snapshot.map(|path| path.to_string_lossy().into_owned()))?;
        }
        if let Some(proxies) = trusted_proxies {
            settings
                .set_item("trusted_proxies", PyList::new(py, proxies.try_iter()?.collect::<PyResult<Vec<_>>>()?)?)?;
        }
        for (name, value) in [("client_address", client_address), ("headers", headers)] {
            if let Some(value) = value {
                settings.set_item(name, value)?;
            }
        }
        if let Some(prefix) = ipv6_prefix {
            settings.set_item("ipv6_prefix", prefix)?;
        }
        if let Some(identify) = identify {
            settings.set_item("identify", identify)?;
        }
        if let Some(status) = deny_status {
            settings.set_item("deny_status", status)?;
        }
        Limiter::made(py, Engine::from_json(&json(settings.as_any())?, ManualClock::or_system(clock)))
    }

    /// With the rules in Postgres, followed while they change. They are read with the first request, or by `connect`; with
    /// `snapshot`, a file, the last good ones serve while the database is unreachable. The other settings are those of `from_rules`.
    #[staticmethod]
    #[pyo3(signature = (url, *, snapshot=None, **settings))]
    fn from_postgres(
        py: Python<'_>,
        url: &str,
        snapshot: Option<PathBuf>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let settings = settings.map_or_else(|| Ok(PyDict::new(py)), PyDictMethods::copy)?;
        settings.set_item("_rules_from", (url, snapshot))?;
        let rules = (PyList::empty(py),);
        Ok(py.get_type::<Limiter>().call_method("from_rules", rules, Some(&settings))?.unbind())
    }

    /// Decides a request: `await limiter.check({"user_id": "42"})`. Cost 0 peeks; `rules` names the rules to apply.
    #[pyo3(signature = (attributes, cost=1, *, rules=None))]
    fn check(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyDict>,
        cost: u32,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(Ask::Check(subject(attributes, cost, rules)?)), Shape::Plain)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (attributes, cost=1, *, rules=None))]
    fn check_sync(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyDict>,
        cost: u32,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(Ask::Check(subject(attributes, cost, rules)?)), Shape::Plain)
    }

    /// Decides a request and holds its slots: `async with limiter.acquire({...}) as permit`.
    #[pyo3(signature = (attributes, cost=1, *, rules=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyDict>,
        cost: u32,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(Ask::Acquire(subject(attributes, cost, rules)?)), Shape::Plain)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (attributes, cost=1, *, rules=None))]
    fn acquire_sync(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyDict>,
        cost: u32,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(Ask::Acquire(subject(attributes, cost, rules)?)), Shape::Plain)
    }

    /// Decides a request whose cost is an estimate: `async with limiter.reserve({...}, cost=4000) as reservation`,
    /// and then `await reservation.settle(2311)` within `hold` seconds.
    #[pyo3(signature = (attributes, cost=1, *, hold=None, rules=None))]
    fn reserve(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyDict>,
        cost: u32,
        hold: Option<f64>,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        let ask = Ask::Reserve(subject(attributes, cost, rules)?, hold.map(duration).transpose()?);
        answered(py, &self.0, self.0.ask(ask), Shape::Plain)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (attributes, cost=1, *, hold=None, rules=None))]
    fn reserve_sync(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyDict>,
        cost: u32,
        hold: Option<f64>,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        let ask = Ask::Reserve(subject(attributes, cost, rules)?, hold.map(duration).transpose()?);
        wait(py, &self.0, self.0.ask(ask), Shape::Plain)
    }

    /// The state of a rule's buckets for a key, without changing them.
    fn inspect(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(Ask::Inspect(rule.into(), key.into())), Shape::Plain)
    }

    /// The same, blocking this thread.
    fn inspect_sync(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(Ask::Inspect(rule.into(), key.into())), Shape::Plain)
    }

    /// Resets a rule's buckets for a key; false when there was nothing to reset.
    fn reset(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(Ask::Reset(rule.into(), key.into())), Shape::Plain)
    }

    /// The same, blocking this thread.
    fn reset_sync(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(Ask::Reset(rule.into(), key.into())), Shape::Plain)
    }

    /// Connects now rather than with the first request, and raises any error of the store.
    fn connect(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(Ask::Connect), Shape::Plain)
    }

    /// The same, blocking this thread.
    fn connect_sync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(Ask::Connect), Shape::Plain)
    }

    /// Returns leased tokens to the store. Called when the interpreter exits.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_connected() {
            wait(py, &self.0, self.0.ask(Ask::Close), Shape::Plain)?;
        }
        Ok(())
    }

    /// Replaces the rules; requests in flight finish with the old ones. Tokens missing from a bucket stay missing.
    fn replace_rules(&self, py: Python<'_>, rules: &Bound<'_, PyAny>) -> PyResult<()> {
        let rules = json(written(rules)?.as_any())?;
        self.0.replace_rules(&rules).map(drop).map_err(|error| raise(py, error))
    }

    /// Replaces the rules by those of a file.
    fn replace_rules_from_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.0.replace_rules_from_file(&path).map(drop).map_err(|error| raise(py, error))
    }

    /// The rules in force, as in a rules file.
    #[getter]
    fn rules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.0.rules_json(),))
    }

    /// Of rules in Postgres: the version in force, the newer one that is refused, and why the database does not answer. None if
    /// the rules come from elsewhere, or before they were read.
    #[getter]
    fn rules_status<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(status) = self.0.rules_status() else { return Ok(None) };
        let told = PyDict::new(py);
        told.set_item("version", status.version)?;
        told.set_item("refused", status.refused)?;
        told.set_item("unreachable", status.unreachable)?;
        Ok(Some(told))
    }

    /// Whether rules in Postgres have yet to be read.
    fn _lacks_rules(&self) -> bool {
        self.0.lacks_rules()
    }

    /// Reads them.
    fn _follow(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(Ask::Follow), Shape::Plain)
    }

    /// The same, waiting on this thread.
    fn _follow_sync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(Ask::Follow), Shape::Plain)
    }

    /// Whether a rule in force is by `user`, which the framework knows.
    fn _needs_user(&self) -> bool {
        self.0.needs().user
    }

    /// Decides an ASGI request: a verdict or a refusal if that needs no server, otherwise an awaitable.
    #[pyo3(signature = (scope, known=None, cost=1))]
    fn _check_asgi(
        &self,
        py: Python<'_>,
        scope: &Bound<'_, PyDict>,
        known: Option<&Bound<'_, PyDict>>,
        cost: u32,
    ) -> PyResult<Py<PyAny>> {
        let needs = self.0.needs();
        let head = match asgi_head(scope, &needs) {
            Ok(head) => head,
            Err(Trouble::Python(error)) => return Err(error),
            Err(Trouble::Request(error)) => return python(py, &self.0, Err(*error), Shape::Http),
        };
        match self.0.ask(http(head, known, cost, &needs)?) {
            Progress::Ready(reply) => python(py, &self.0, reply, Shape::Http),
            Progress::Pending(work) => later(py, &self.0, work, Shape::Http),
        }
    }

    /// Decides a WSGI request on this thread.
    #[pyo3(signature = (environ, known=None, cost=1))]
    fn _check_wsgi(
        &self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        known: Option<&Bound<'_, PyDict>>,
        cost: u32,
    ) -> PyResult<Py<PyAny>> {
        let needs = self.0.needs();
        let head = match wsgi_head(environ, &needs) {
            Ok(head) => head,
            Err(Trouble::Python(error)) => return Err(error),
            Err(Trouble::Request(error)) => return python(py, &self.0, Err(*error), Shape::Http),
        };
        wait(py, &self.0, self.0.ask(http(head, known, cost, &needs)?), Shape::Http)
    }
}

impl Limiter {
    /// A limiter that may have leases is closed when the interpreter exits.
    fn made(py: Python<'_>, engine: Result<Arc<Engine>, tollkeeper_engine::Error>) -> PyResult<Py<Limiter>> {
        let engine = engine.map_err(|error| raise(py, error))?;
        let is_remote = engine.is_remote();
        let limiter = Py::new(py, Limiter(engine))?;
        if is_remote {
            py.import("tollkeeper._exit")?.call_method1("remember", (&limiter,))?;
        }
        Ok(limiter)
    }
}

fn duration(seconds: f64) -> PyResult<std::time::Duration> {
    std::time::Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("hold: {seconds} is not a length of time in seconds")))
}

/// Rules as JSON; lines are rules too.
fn written<'py>(rules: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = rules.py();
    if rules.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("rules are a list, of dicts or of lines such as \"100/min by ip\""));
    }
    let all = PyList::empty(py);
    for (index, rule) in rules.try_iter()?.enumerate() {
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

fn json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.py().import("json")?.call_method1("dumps", (value,))?.extract()
}

/// Attributes by name. Values are strings; numbers and booleans are converted.
pub(crate) fn pairs(attributes: &Bound<'_, PyDict>) -> PyResult<Vec<(String, String)>> {
    let mut pairs = Vec::with_capacity(attributes.len());
    for (name, value) in attributes {
        // None means absent.
        if value.is_none() {
            continue;
        }
        let name = utf8(name.cast::<PyString>()?)?.into_owned();
        let value = match value.cast::<PyString>() {
            Ok(text) => utf8(text)?.into_owned(),
            Err(_) if value.is_instance_of::<pyo3::types::PyBool>() => value.is_truthy()?.to_string(),
            Err(_) => value.str()?.to_string(),
        };
        pairs.push((name, value));
    }
    Ok(pairs)
}

fn subject(attributes: &Bound<'_, PyDict>, cost: u32, rules: Option<Vec<String>>) -> PyResult<Subject> {
    let request = Descriptor::new(pairs(attributes)?).with_cost(cost);
    Ok(Subject::Attributes(match rules {
        Some(names) => request.with_rules(names),
        None => request,
    }))
}

fn http(mut head: Head, known: Option<&Bound<'_, PyDict>>, cost: u32, needs: &Needs) -> PyResult<Ask> {
    head.set_cost(cost);
    if let Some(known) = known {
        for (name, value) in pairs(known)? {
            head.know(name, value);
        }
    }
    let subject = Subject::Http(Box::new(head));
    Ok(if needs.slots { Ask::Acquire(subject) } else { Ask::Check(subject) })
}

/// Why there is no head.
enum Trouble {
    Python(PyErr),
    Request(Box<tollkeeper_engine::Error>),
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Trouble {
        Trouble::Python(error)
    }
}

impl From<tollkeeper_engine::Error> for Trouble {
    fn from(error: tollkeeper_engine::Error) -> Trouble {
        Trouble::Request(Box::new(error))
    }
}

/// A head with the client's address from the server.
fn of_client(host: Option<&str>) -> Head {
    let Some(host) = host.filter(|host| !host.is_empty()) else { return Head::new(None) };
    // A zone, as in `fe80::1%eth0`, only matters on this machine.
    match host.split('%').next().unwrap_or(host).parse::<IpAddr>() {
        Ok(address) => Head::new(Some(address)),
        Err(_) => {
            // Test clients have a name instead. Clients cannot choose it: it comes from the server.
            let mut head = Head::new(None);
            head.know("ip", host);
            head
        }
    }
}

fn asgi_head(scope: &Bound<'_, PyDict>, needs: &Needs) -> Result<Head, Trouble> {
    let py = scope.py();
    let host = match scope.get_item(intern!(py, "client"))? {
        Some(client) if !client.is_none() => client.get_item(0)?.cast_into::<PyString>().ok(),
        _ => None,
    };
    let mut head = match &host {
        Some(host) => of_client(Some(&utf8(host)?)),
        None => of_client(None),
    };
    if needs.method {
        // A WebSocket handshake is a GET.
        match scope.get_item(intern!(py, "method"))? {
            Some(method) => head.set_method(utf8(method.cast::<PyString>().map_err(PyErr::from)?)?.as_bytes()),
            None => head.set_method(b"GET"),
        }
    }
    if needs.target {
        let query = scope.get_item(intern!(py, "query_string"))?;
        let query = query.as_ref().and_then(|query| query.cast::<PyBytes>().ok());
        let query = query.map_or(&b""[..], |query| query.as_bytes());
        let raw = scope.get_item(intern!(py, "raw_path"))?.filter(|raw| !raw.is_none());
        match raw.as_ref().and_then(|raw| raw.cast::<PyBytes>().ok()) {
            // Some servers leave the query in it.
            Some(raw) => {
                head.set_target(raw.as_bytes().split(|byte| *byte == b'?').next().unwrap_or_default(), query)?
            }
            None => {
                let path = scope.get_item(intern!(py, "path"))?.map(|path| path.extract::<String>()).transpose()?;
                head.set_target(path.unwrap_or_default().replace('%', "%25").as_bytes(), query)?;
            }
        }
    }
    if !needs.headers.is_empty()
        && let Some(headers) = scope.get_item(intern!(py, "headers"))?
    {
        for field in headers.try_iter()? {
            let field = field?;
            let (name, value) = match field.cast::<PyTuple>() {
                Ok(pair) => (pair.get_item(0)?, pair.get_item(1)?),
                Err(_) => (field.get_item(0)?, field.get_item(1)?),
            };
            let name = name.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
            if needs.headers.iter().any(|wanted| wanted.as_str().as_bytes().eq_ignore_ascii_case(name)) {
                head.add_header(name, value.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
            }
        }
    }
    Ok(head)
}

fn wsgi_head(environ: &Bound<'_, PyDict>, needs: &Needs) -> Result<Head, Trouble> {
    // WSGI passes bytes as Latin-1 strings.
    let bytes = |name: &str| -> PyResult<Option<Vec<u8>>> {
        let Some(value) = environ.get_item(name)? else { return Ok(None) };
        let text: String = value.extract()?;
        Ok(Some(text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()))
    };
    let host = bytes("REMOTE_ADDR")?;
    let mut head = of_client(host.as_deref().and_then(|host| std::str::from_utf8(host).ok()));
    if needs.method {
        head.set_method(&bytes("REQUEST_METHOD")?.unwrap_or_default());
    }
    if needs.target {
        let query = bytes("QUERY_STRING")?.unwrap_or_default();
        let path = match bytes("RAW_URI")?.or(bytes("REQUEST_URI")?).filter(|target| target.starts_with(b"/")) {
            Some(target) => target.split(|byte| *byte == b'?').next().unwrap_or_default().to_vec(),
            None => {
                let path = [bytes("SCRIPT_NAME")?, bytes("PATH_INFO")?].into_iter().flatten().flatten();
                path.flat_map(|byte| if byte == b'%' { b"%25".to_vec() } else { vec![byte] }).collect()
            }
        };
        head.set_target(&path, &query)?;
    }
    for name in &needs.headers {
        let upper = name.as_str().to_ascii_uppercase().replace('-', "_");
        let key =
            if matches!(name.as_str(), "content-type" | "content-length") { upper } else { format!("HTTP_{upper}") };
        if let Some(value) = bytes(&key)? {
            head.add_header(name.as_str().as_bytes(), &value);
        }
    }
    Ok(head)
}

/// Buckets as dicts.
pub(crate) fn buckets(py: Python<'_>, buckets: Vec<Inspected>) -> PyResult<Py<PyAny>> {
    let all = PyList::empty(py);
    for Inspected { charge, decision, .. } in buckets {
        let bucket = PyDict::new(py);
        bucket.set_item("key", charge.key.value)?;
        bucket.set_item("allowed", decision.is_allowed())?;
        bucket.set_item("limit", decision.limit)?;
        bucket.set_item("remaining", decision.remaining)?;
        bucket.set_item("retry_after", decision.retry_after().map(|wait| seconds(wait.as_micros())))?;
        bucket.set_item("reset_after", seconds(decision.reset_after.as_micros()))?;
        all.append(bucket)?;
    }
    Ok(all.into_any().unbind())
}
