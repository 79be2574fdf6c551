//! Rules over a store.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use tollkeeper::{ExceptionKind, Grant, Inspected};
use tollkeeper_engine::{Ask, Engine, Head, Progress};

use crate::clock::{ManualClock, seconds, timeout_text};
use crate::cost::Cost;
use crate::errors::raise;
use crate::event_loop::{Shape, answered, later, python, unreported, wait};
use crate::exception::{Given, named_key};
use crate::notice::{log, report, warn};
use crate::request::{Trouble, asgi_head, estimate, know, many, subject, wsgi_head};
use crate::rules::{json, written};

/// Decides requests by rules that can change while it runs. Creating one opens no connection and starts no thread; a
/// forked process connects on its own.
#[pyclass(frozen, module = "tollkeeper", weakref)]
pub(crate) struct Limiter(Arc<Engine>);

#[pymethods]
impl Limiter {
    /// From a rules file, as for the service.
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
        max_keys: Option<&Bound<'_, PyAny>>,
        namespace: Option<&str>,
        trusted_proxies: Option<&Bound<'_, PyAny>>,
        client_address: Option<&str>,
        ipv6_prefix: Option<&Bound<'_, PyAny>>,
        headers: Option<&str>,
        identify: Option<&Bound<'_, PyAny>>,
        deny_status: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, ManualClock>>,
        _rules_from: Option<(String, Option<PathBuf>)>,
    ) -> PyResult<Py<Limiter>> {
        let place = PyDict::new(py);
        place.set_item("url", store)?;
        place.set_item("timeout", timeout.map(timeout_text).transpose()?)?;
        put(&place, "max_keys", max_keys)?;
        place.set_item("namespace", namespace)?;
        let settings = PyDict::new(py);
        settings.set_item("store", place)?;
        settings.set_item("rules", written(rules)?)?;
        if let Some((url, snapshot)) = _rules_from {
            settings.set_item("rules_from", url)?;
            settings.set_item("rules_snapshot", snapshot.map(|path| path.to_string_lossy().into_owned()))?;
        }
        put(&settings, "trusted_proxies", trusted_proxies.map(proxies).transpose()?)?;
        put(&settings, "client_address", client_address)?;
        put(&settings, "headers", headers)?;
        put(&settings, "ipv6_prefix", ipv6_prefix)?;
        put(&settings, "identify", identify)?;
        put(&settings, "deny_status", deny_status)?;
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
    #[pyo3(signature = (attributes, cost=Cost::ONE, *, rules=None))]
    fn check(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: Cost,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Check(subject(attributes, cost.0, rules)?))
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (attributes, cost=Cost::ONE, *, rules=None))]
    fn check_sync(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: Cost,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Check(subject(attributes, cost.0, rules)?))
    }

    /// Decides several requests, each by itself; the verdicts are in their order. Each is a dict of attributes, or `(attributes, cost)`. One
    /// that is invalid refuses all of them, and nothing is charged.
    #[pyo3(signature = (requests, *, rules=None))]
    fn check_many(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.later(py, many(requests, rules)?)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (requests, *, rules=None))]
    fn check_many_sync(
        &self,
        py: Python<'_>,
        requests: &Bound<'_, PyAny>,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.now(py, many(requests, rules)?)
    }

    /// Decides a request and holds its slots: `async with limiter.acquire({...}) as permit`.
    #[pyo3(signature = (attributes, cost=Cost::ONE, *, rules=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: Cost,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Acquire(subject(attributes, cost.0, rules)?))
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (attributes, cost=Cost::ONE, *, rules=None))]
    fn acquire_sync(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: Cost,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Acquire(subject(attributes, cost.0, rules)?))
    }

    /// Decides a request whose cost is an estimate: `async with limiter.reserve({...}, cost=4000) as reservation`,
    /// and then `await reservation.settle(2311)` within `hold` seconds.
    #[pyo3(signature = (attributes, cost=Cost::ONE, *, hold=None, rules=None))]
    fn reserve(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: Cost,
        hold: Option<f64>,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.later(py, estimate(attributes, cost.0, hold, rules)?)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (attributes, cost=Cost::ONE, *, hold=None, rules=None))]
    fn reserve_sync(
        &self,
        py: Python<'_>,
        attributes: &Bound<'_, PyAny>,
        cost: Cost,
        hold: Option<f64>,
        rules: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        self.now(py, estimate(attributes, cost.0, hold, rules)?)
    }

    /// The state of a rule's buckets for a key, without changing them.
    fn inspect(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Inspect(rule.into(), key.into()))
    }

    /// The same, blocking this thread.
    fn inspect_sync(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Inspect(rule.into(), key.into()))
    }

    /// Resets a rule's buckets for a key; false when there was nothing to reset.
    fn reset(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Reset(rule.into(), key.into()))
    }

    /// The same, blocking this thread.
    fn reset_sync(&self, py: Python<'_>, rule: &str, key: &str) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Reset(rule.into(), key.into()))
    }

    /// Denies every request of a key, for a while or until lifted. `rule` is a name, or `*` for every rule that has
    /// this key; `duration` is in seconds, a text such as "1h" or a timedelta, and `until` a datetime or seconds since the
    /// epoch; `by` names the attribute, where the rule's key has alternatives.
    #[pyo3(signature = (rule, key, *, by=None, duration=None, until=None, reason=None, made_by=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn block(
        &self,
        py: Python<'_>,
        rule: &str,
        key: &str,
        by: Option<&str>,
        duration: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        reason: Option<String>,
        made_by: Option<String>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { rule, key, by, duration, until, reason, made_by };
        self.later(py, given.ask(py, ExceptionKind::Block)?)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (rule, key, *, by=None, duration=None, until=None, reason=None, made_by=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn block_sync(
        &self,
        py: Python<'_>,
        rule: &str,
        key: &str,
        by: Option<&str>,
        duration: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        reason: Option<String>,
        made_by: Option<String>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { rule, key, by, duration, until, reason, made_by };
        self.now(py, given.ask(py, ExceptionKind::Block)?)
    }

    /// Lets every request of a key pass a rule, without charging it.
    #[pyo3(signature = (rule, key, *, by=None, duration=None, until=None, reason=None, made_by=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn allow(
        &self,
        py: Python<'_>,
        rule: &str,
        key: &str,
        by: Option<&str>,
        duration: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        reason: Option<String>,
        made_by: Option<String>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { rule, key, by, duration, until, reason, made_by };
        self.later(py, given.ask(py, ExceptionKind::Allow)?)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (rule, key, *, by=None, duration=None, until=None, reason=None, made_by=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn allow_sync(
        &self,
        py: Python<'_>,
        rule: &str,
        key: &str,
        by: Option<&str>,
        duration: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        reason: Option<String>,
        made_by: Option<String>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { rule, key, by, duration, until, reason, made_by };
        self.now(py, given.ask(py, ExceptionKind::Allow)?)
    }

    /// Gives a key another limit than the rule's: `limiter.grant("per-user", "42", "1000/min", burst=200, duration="7d")`. What
    /// it has used stays used.
    #[pyo3(signature = (rule, key, limit, *, burst=None, by=None, duration=None, until=None, reason=None, made_by=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn grant(
        &self,
        py: Python<'_>,
        rule: &str,
        key: &str,
        limit: String,
        burst: Option<u32>,
        by: Option<&str>,
        duration: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        reason: Option<String>,
        made_by: Option<String>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { rule, key, by, duration, until, reason, made_by };
        self.later(py, given.ask(py, ExceptionKind::Grant(Grant { limit, burst }))?)
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (rule, key, limit, *, burst=None, by=None, duration=None, until=None, reason=None, made_by=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named where they are given")]
    fn grant_sync(
        &self,
        py: Python<'_>,
        rule: &str,
        key: &str,
        limit: String,
        burst: Option<u32>,
        by: Option<&str>,
        duration: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        reason: Option<String>,
        made_by: Option<String>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { rule, key, by, duration, until, reason, made_by };
        self.now(py, given.ask(py, ExceptionKind::Grant(Grant { limit, burst }))?)
    }

    /// Ends the exception of a rule, or of `*`, and a key. Returns it, or None if there was none.
    #[pyo3(signature = (rule, key, *, by=None))]
    fn lift(&self, py: Python<'_>, rule: &str, key: &str, by: Option<&str>) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Lift(rule.into(), named_key(key, by)))
    }

    /// The same, blocking this thread.
    #[pyo3(signature = (rule, key, *, by=None))]
    fn lift_sync(&self, py: Python<'_>, rule: &str, key: &str, by: Option<&str>) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Lift(rule.into(), named_key(key, by)))
    }

    /// The exceptions in force.
    fn exceptions(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Exceptions)
    }

    /// The same, blocking this thread.
    fn exceptions_sync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Exceptions)
    }

    /// Connects now rather than with the first request, and raises any error of the store.
    fn connect(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Connect)
    }

    /// The same, blocking this thread.
    fn connect_sync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Connect)
    }

    /// Returns leased tokens to the store. Called when the interpreter exits.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.0.is_connected() {
            return Ok(());
        }
        // Without reporting what is wrong with the store: to a process that ends it no longer matters.
        unreported(py, &self.0, self.0.ask(Ask::Close), Shape::Plain).map(drop)
    }

    /// Replaces the rules; requests in flight finish with the old ones. Tokens missing from a bucket stay missing.
    fn replace_rules(&self, py: Python<'_>, rules: &Bound<'_, PyAny>) -> PyResult<()> {
        let rules = json(written(rules)?.as_any())?;
        reported(py, self.0.replace_rules(&rules))
    }

    /// Replaces the rules with those in a file.
    fn replace_rules_from_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        reported(py, self.0.replace_rules_from_file(&path))
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
        let shown = PyDict::new(py);
        shown.set_item("version", status.version)?;
        shown.set_item("refused", status.refused)?;
        shown.set_item("unreachable", status.unreachable)?;
        Ok(Some(shown))
    }

    /// Whether rules in Postgres have yet to be read.
    fn _lacks_rules(&self) -> bool {
        self.0.lacks_rules()
    }

    /// Reads them.
    fn _follow(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.later(py, Ask::Follow)
    }

    /// The same, waiting on this thread.
    fn _follow_sync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.now(py, Ask::Follow)
    }

    /// Whether a rule in force is by `user`, which the framework knows.
    fn _needs_user(&self) -> bool {
        self.0.needs().user
    }

    /// Decides an ASGI request: a verdict or a refusal if that needs no server, otherwise an awaitable.
    /// `may_not_count`: its charge may be given back by `Verdict._give_back`.
    #[pyo3(signature = (scope, known=None, cost=Cost::ONE, may_not_count=false))]
    fn _check_asgi(
        &self,
        py: Python<'_>,
        scope: &Bound<'_, PyDict>,
        known: Option<&Bound<'_, PyDict>>,
        cost: Cost,
        may_not_count: bool,
    ) -> PyResult<Py<PyAny>> {
        match self.ask_http(py, asgi_head(scope, &self.0), known, cost, may_not_count)? {
            Progress::Ready(reply) => python(py, &self.0, reply, Shape::Http),
            Progress::Pending(work) => Ok(later(py, &self.0, work, Shape::Http)?.into_any()),
        }
    }

    /// Decides a WSGI request on this thread.
    #[pyo3(signature = (environ, known=None, cost=Cost::ONE, may_not_count=false))]
    fn _check_wsgi(
        &self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        known: Option<&Bound<'_, PyDict>>,
        cost: Cost,
        may_not_count: bool,
    ) -> PyResult<Py<PyAny>> {
        let progress = self.ask_http(py, wsgi_head(environ, &self.0), known, cost, may_not_count)?;
        wait(py, &self.0, progress, Shape::Http)
    }
}

impl Limiter {
    /// Asks, for a caller that awaits the answer.
    fn later(&self, py: Python<'_>, ask: Ask) -> PyResult<Py<PyAny>> {
        answered(py, &self.0, self.0.ask(ask), Shape::Plain)
    }

    /// Asks, and blocks this thread until there is an answer.
    fn now(&self, py: Python<'_>, ask: Ask) -> PyResult<Py<PyAny>> {
        wait(py, &self.0, self.0.ask(ask), Shape::Plain)
    }

    /// Asks about an HTTP request; one that cannot be read is refused.
    fn ask_http(
        &self,
        py: Python<'_>,
        head: Result<Head, Trouble>,
        known: Option<&Bound<'_, PyDict>>,
        cost: Cost,
        may_not_count: bool,
    ) -> PyResult<Progress> {
        let mut head = match head {
            Ok(head) => head,
            Err(Trouble::Python(error)) => return Err(error),
            Err(Trouble::Request(error)) => return Ok(Progress::Ready(Err(*error))),
        };
        head.set_cost(cost.0);
        know(&mut head, known)?;
        let progress = match may_not_count {
            false => self.0.ask_http(&mut head),
            true => self.0.reserve_http(&mut head),
        };
        if let Some(notice) = self.0.take_notice() {
            log(py, &notice)?;
        }
        report(py, &self.0)?;
        Ok(progress)
    }

    /// A limiter that may have leases is closed when the interpreter exits.
    fn made(py: Python<'_>, engine: Result<Arc<Engine>, tollkeeper_engine::Error>) -> PyResult<Py<Limiter>> {
        let engine = engine.map_err(|error| raise(py, error))?;
        for warning in engine.warnings() {
            warn(py, warning)?;
        }
        let is_remote = engine.is_remote();
        let limiter = Py::new(py, Limiter(engine))?;
        if is_remote {
            py.import("tollkeeper._exit")?.call_method1("remember", (&limiter,))?;
        }
        Ok(limiter)
    }
}

/// Warns about rules that have just been put in force.
fn reported(py: Python<'_>, warnings: Result<Vec<String>, tollkeeper_engine::Error>) -> PyResult<()> {
    warnings.map_err(|error| raise(py, error))?.iter().try_for_each(|warning| warn(py, warning))
}

/// Proxies as a list. A text would be taken for a list of its letters.
fn proxies<'py>(given: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if given.is_instance_of::<PyString>() {
        let problem = format!("trusted_proxies must be a list such as [\"10.0.0.0/8\"], not {}", given.repr()?);
        return Err(PyTypeError::new_err(problem));
    }
    given.try_iter()?.collect()
}

/// Sets what was given: a setting that was not has its default.
fn put<'py>(settings: &Bound<'py, PyDict>, name: &str, value: Option<impl IntoPyObject<'py>>) -> PyResult<()> {
    value.map_or(Ok(()), |value| settings.set_item(name, value))
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
