//! Rules over a store.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::External;
use napi_derive::napi;
use tollkeeper_engine::{Ask, Engine, Progress, Status, Subject};

use crate::answers::{Answer, Audience, answered};
use crate::call::Callable;
use crate::check::{Check, CheckHttp, descriptor};
use crate::clock::ManualClock;
use crate::errors::{Raised, misused, raise};
use crate::exception::{Given, named_key};
use crate::layer::Pages;

/// Which parts of an HTTP request the rules in force need.
#[napi(object)]
pub struct Needs {
    /// Method.
    pub method: bool,
    /// Path and query.
    pub target: bool,
    /// Headers by name, in lower case.
    pub headers: Vec<String>,
    /// Whether a rule has slots.
    pub slots: bool,
    /// Whether a rule limits by user, which frameworks know.
    pub user: bool,
    /// The client's address.
    pub address: bool,
}

/// Which version of the rules in Postgres is in force, and why there is no newer one.
#[napi(object)]
pub struct RulesStatus {
    /// The version in force.
    pub version: i64,
    /// A newer version that was refused.
    pub refused: Option<RefusedRules>,
    /// Why the database does not answer.
    pub unreachable: Option<String>,
}

/// A version of the rules that was refused.
#[napi(object)]
pub struct RefusedRules {
    /// Which one.
    pub version: i64,
    /// Why.
    pub problem: String,
}

/// Decides requests by rules that can change while it runs. Creating one opens no connection and starts no thread.
#[napi]
pub struct Limiter(Arc<Engine>);

#[napi]
impl Limiter {
    /// From a rules file; `store` overrides the URL in it.
    #[napi(factory)]
    pub fn from_file(path: String, store: Option<String>, clock: Option<&ManualClock>) -> Result<Limiter, Raised> {
        let engine = Engine::from_file(&PathBuf::from(path), store.as_deref(), ManualClock::or_system(clock));
        engine.map(Limiter).map_err(raise)
    }

    /// From code: JSON in the shape of the rules file.
    #[napi(factory)]
    pub fn from_json(text: String, clock: Option<&ManualClock>) -> Result<Limiter, Raised> {
        Engine::from_json(&text, ManualClock::or_system(clock)).map(Limiter).map_err(raise)
    }

    /// Whether answers may come from a server, and so later.
    #[napi(getter)]
    pub fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    /// Whether the rules come from Postgres, and so may change at any time.
    #[napi(getter)]
    pub fn follows(&self) -> bool {
        self.0.follows()
    }

    /// Whether rules in Postgres have yet to be read: what they need of a request is known then.
    #[napi(getter)]
    pub fn lacks_rules(&self) -> bool {
        self.0.lacks_rules()
    }

    /// Reads them, and follows them from then on.
    #[napi]
    pub fn follow(&self, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Follow, ticket)
    }

    /// The same, blocking this thread.
    #[napi]
    pub fn follow_sync(&self) -> Result<(), Raised> {
        self.wait(Ask::Follow)
    }

    /// Which version of the rules in Postgres is in force; nothing if they come from elsewhere.
    #[napi]
    pub fn rules_status(&self) -> Option<RulesStatus> {
        let Status { version, refused, unreachable } = self.0.rules_status()?;
        let refused = refused.map(|(version, problem)| RefusedRules { version, problem });
        Some(RulesStatus { version, refused, unreachable })
    }

    /// Settings that are valid but probably mistakes.
    #[napi]
    pub fn warnings(&self) -> Vec<String> {
        self.0.warnings().to_vec()
    }

    /// Headers to pass with a sample of the requests: they reveal a proxy that is not trusted.
    #[napi]
    pub fn forwarding_headers(&self) -> Vec<&'static str> {
        self.0.forwarding_headers().iter().map(|name| name.as_str()).collect()
    }

    /// What an operator should know, found in the requests so far.
    #[napi]
    pub fn take_notice(&self) -> Option<String> {
        self.0.take_notice()
    }

    /// Whether forwarding headers of some proxies are trusted.
    #[napi(getter)]
    pub fn trusts_proxies(&self) -> bool {
        self.0.trusts_proxies()
    }

    /// Which parts of an HTTP request the rules in force need.
    #[napi]
    pub fn needs(&self) -> Needs {
        let needs = self.0.needs();
        Needs {
            method: needs.method,
            target: needs.target,
            headers: needs.headers.iter().map(ToString::to_string).collect(),
            slots: needs.slots,
            user: needs.user,
            address: needs.address,
        }
    }

    /// A function that decides requests: see [`Check`].
    #[napi]
    pub fn checker(&self) -> Callable<Check> {
        Callable(Check(self.0.clone()))
    }

    /// A function that decides HTTP requests, whose charges may be given back if they may not count: see [`CheckHttp`].
    #[napi]
    pub fn http_checker(&self, pages: &External<Rc<Pages>>, may_not_count: bool) -> Callable<CheckHttp> {
        let (engine, pages, head) = (self.0.clone(), Rc::clone(pages), RefCell::default());
        Callable(CheckHttp { engine, pages, may_not_count, head })
    }

    /// The names of the limit headers, in lower case.
    #[napi]
    pub fn header_names(&self) -> Vec<&'static str> {
        self.0.header_names().to_vec()
    }

    /// Decides a request and holds its slots. Attributes are a flat list of names and values. Returns nothing if the answer
    /// comes later, under this ticket. The same holds for the methods below.
    #[napi]
    pub fn acquire(
        &self,
        attributes: Vec<String>,
        cost: u32,
        rules: Option<Vec<String>>,
        ticket: u32,
    ) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Acquire(Subject::Attributes(descriptor(pairs(attributes), cost, rules))), ticket)
    }

    /// Decides several requests, each by itself: attributes, cost and rules of each.
    #[napi]
    pub fn check_many(
        &self,
        attributes: Vec<Vec<String>>,
        costs: Vec<u32>,
        rules: Vec<Option<Vec<String>>>,
        ticket: u32,
    ) -> Result<Option<Answer>, Raised> {
        let each = attributes.into_iter().zip(costs).zip(rules);
        let requests = each.map(|((attributes, cost), rules)| descriptor(pairs(attributes), cost, rules));
        self.ask(Ask::CheckMany(requests.collect()), ticket)
    }

    /// Decides a request whose cost is an estimate, to be settled within `hold` seconds.
    #[napi]
    pub fn reserve(
        &self,
        attributes: Vec<String>,
        cost: u32,
        hold: Option<f64>,
        rules: Option<Vec<String>>,
        ticket: u32,
    ) -> Result<Option<Answer>, Raised> {
        let duration = |seconds: f64| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| misused(format!("hold: {seconds} is not a duration in seconds")))
        };
        let subject = Subject::Attributes(descriptor(pairs(attributes), cost, rules));
        self.ask(Ask::Reserve(subject, hold.map(duration).transpose()?), ticket)
    }

    /// The state of a rule's buckets for a key, without changing them.
    #[napi]
    pub fn inspect(&self, rule: String, key: String, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Inspect(rule, key), ticket)
    }

    /// Resets a rule's buckets for a key; false when there was nothing to reset.
    #[napi]
    pub fn reset(&self, rule: String, key: String, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Reset(rule, key), ticket)
    }

    /// Makes an exception for a key.
    #[napi]
    pub fn except(&self, given: Given, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(given.ask()?, ticket)
    }

    /// Lifts the exception of a rule, or of `*`, and a key.
    #[napi]
    pub fn lift(&self, rule: String, key: String, by: Option<String>, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Lift(rule, named_key(key, by)), ticket)
    }

    /// The exceptions in force.
    #[napi]
    pub fn exceptions(&self, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Exceptions, ticket)
    }

    /// Connects now rather than with the first request.
    #[napi]
    pub fn connect(&self, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Connect, ticket)
    }

    /// Whether this process has connected to a server.
    #[napi(getter)]
    pub fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// Returns leased tokens to the store.
    #[napi]
    pub fn close(&self, ticket: u32) -> Result<Option<Answer>, Raised> {
        self.ask(Ask::Close, ticket)
    }

    /// The same, blocking this thread: the last call before the process exits.
    #[napi]
    pub fn close_sync(&self) -> Result<(), Raised> {
        self.wait(Ask::Close)
    }

    /// Replaces the rules by a JSON list. Returns warnings.
    #[napi]
    pub fn replace_rules(&self, json: String) -> Result<Vec<String>, Raised> {
        self.0.replace_rules(&json).map_err(raise)
    }

    /// Replaces the rules with those in a file. Returns warnings.
    #[napi]
    pub fn replace_rules_from_file(&self, path: String) -> Result<Vec<String>, Raised> {
        self.0.replace_rules_from_file(&PathBuf::from(path)).map_err(raise)
    }

    /// The rules in force, as JSON.
    #[napi]
    pub fn rules_json(&self) -> String {
        self.0.rules_json()
    }
}

impl Limiter {
    fn ask(&self, ask: Ask, ticket: u32) -> Result<Option<Answer>, Raised> {
        answered(&self.0, self.0.ask(ask), Audience::Caller, ticket)
    }

    fn wait(&self, ask: Ask) -> Result<(), Raised> {
        let reply = match self.0.ask(ask) {
            Progress::Ready(reply) => reply,
            Progress::Pending(work) => work.wait(),
        };
        reply.map(drop).map_err(raise)
    }
}

/// The rule of a one-line limit, as JSON. `by` is for callers that pass it separately.
#[napi]
pub fn rule_json(name: String, line: String, by: Option<String>) -> Result<String, Raised> {
    let spec = tollkeeper_engine::rule(&name, &line, by.as_deref()).map_err(raise)?;
    serde_json::to_string(&spec).map_err(|error| misused(error.to_string()))
}

/// Names and values in turn.
pub(crate) fn pairs(flat: Vec<String>) -> Vec<(String, String)> {
    let mut pairs = Vec::with_capacity(flat.len() / 2);
    let mut flat = flat.into_iter();
    while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
        pairs.push((name, value));
    }
    pairs
}
