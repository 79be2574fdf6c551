//! Spans: one per request, and a child for each decision.

use std::sync::Arc;
use std::time::Instant;

use tollkeeper::{Store, Verdict};

use super::context::Context;
use super::messages::{self, KeyValue, attribute};

/// A batch may have very many; the first ones are enough.
const MOST_DECISIONS: usize = 32;

/// The numbers of OpenTelemetry's SpanKind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A traced request in progress.
#[derive(Debug)]
pub(crate) struct Begun {
    context: Context,
    parent: Option<[u8; 8]>,
    started: Instant,
}

/// What is known about a request once it is answered.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) attributes: Vec<KeyValue>,
    /// Whether it failed through no fault of the caller.
    pub(crate) is_error: bool,
}

/// What happens while a traced request is handled.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) context: Context,
    decisions: Vec<Decided>,
}

/// One decision.
#[derive(Debug)]
pub(super) struct Decided {
    started: Instant,
    ended: Instant,
    kind: Kind,
    rule: Option<Arc<str>>,
    outcome: &'static str,
    source: &'static str,
    store: &'static str,
    rules: usize,
}

/// A finished span. It gets its wall-clock times when it is sent.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) span: messages::Span,
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

impl Begun {
    pub(super) fn new(context: Context, parent: Option<[u8; 8]>) -> Begun {
        Begun { context, parent, started: Instant::now() }
    }

    /// The work recorded until it ends.
    pub(super) fn work(&self) -> Work {
        Work { context: self.context, decisions: Vec::new() }
    }
}

impl Work {
    pub(super) fn add_decision(&mut self, store: &Store, verdict: &Verdict, started: Instant) {
        if self.decisions.len() < MOST_DECISIONS {
            self.decisions.push(Decided::new(store, verdict, started));
        }
    }

    pub(super) fn take_decisions(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decisions)
    }
}

impl Decided {
    fn new(store: &Store, verdict: &Verdict, started: Instant) -> Decided {
        let (store, kind) = match store {
            Store::Redis(_) | Store::Unreachable(_) => ("redis", Kind::Client),
            _ => ("memory", Kind::Internal),
        };
        let outcome = match (verdict.is_allowed(), verdict.is_unavailable()) {
            (true, _) => "allowed",
            (false, false) => "denied",
            (false, true) => "unavailable",
        };
        Decided {
            started,
            ended: Instant::now(),
            kind,
            rule: verdict.limiting().map(|row| row.charge.rule.shared_name()),
            outcome,
            source: verdict.source().name(),
            store,
            rules: verdict.rows().len(),
        }
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![
            attribute("tollkeeper.outcome", self.outcome),
            attribute("tollkeeper.source", self.source),
            attribute("tollkeeper.rules", self.rules as i64),
        ];
        attributes.extend(self.rule.as_ref().map(|rule| attribute("tollkeeper.rule", &**rule)));
        attributes
    }
}

impl Begun {
    pub(super) fn end(self, described: Described, decisions: Vec<Decided>) -> Vec<Ended> {
        let Context { trace, span } = self.context;
        let mut attributes = described.attributes;
        // The decision that explains the answer: the first denial, otherwise the last one.
        let decisive = decisions.iter().find(|decided| decided.outcome != "allowed").or(decisions.last());
        attributes.extend(decisive.into_iter().flat_map(Decided::attributes));
        let request = messages::Span {
            trace_id: trace.to_vec(),
            span_id: span.to_vec(),
            parent_span_id: self.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
            name: described.name,
            kind: Kind::Server as i32,
            attributes,
            status: described.is_error.then_some(messages::Status::ERROR),
            ..messages::Span::default()
        };
        let mut spans = vec![Ended { span: request, started: self.started, ended: Instant::now() }];
        spans.extend(decisions.into_iter().map(|decided| {
            let mut attributes = decided.attributes();
            attributes.push(attribute("db.system.name", decided.store));
            let below = messages::Span {
                trace_id: trace.to_vec(),
                span_id: Context::new(Some(trace)).span.to_vec(),
                parent_span_id: span.to_vec(),
                name: "decide".into(),
                kind: decided.kind as i32,
                attributes,
                status: (decided.outcome == "unavailable").then_some(messages::Status::ERROR),
                ..messages::Span::default()
            };
            Ended { span: below, started: decided.started, ended: decided.ended }
        }));
        spans
    }
}

impl Described {
    /// By the semantic conventions for HTTP. Unusual methods are replaced, because clients can invent them.
    pub(crate) fn http(method: &http::Method, route: &str, status: http::StatusCode) -> Described {
        const USUAL: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
        let method = USUAL.into_iter().find(|usual| *usual == method.as_str()).unwrap_or("_OTHER");
        let mut attributes = vec![
            attribute("http.request.method", method),
            attribute("http.response.status_code", i64::from(status.as_u16())),
        ];
        if !route.is_empty() {
            attributes.push(attribute("http.route", route));
        }
        let named = if method == "_OTHER" { "HTTP" } else { method };
        let name = if route.is_empty() { named.to_string() } else { format!("{named} {route}") };
        Described { name, attributes, is_error: status.is_server_error() }
    }

    /// A call over another protocol.
    pub(crate) fn call(system: &'static str, method: &str, is_error: bool) -> Described {
        let attributes = vec![attribute("rpc.system", system), attribute("rpc.method", method)];
        Described { name: method.to_string(), attributes, is_error }
    }
}
