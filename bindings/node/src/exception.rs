//! Exceptions for single keys: blocked, allowed, or with a limit of their own.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use serde::Serialize;
use tollkeeper::{Exception, ExceptionKind, Grant, NamedKey, Span, Timestamp, parse_span};
use tollkeeper_engine::{Ask, End};

use crate::errors::{Raised, misused, raise};

/// What a caller gives for an exception.
#[napi(object)]
pub struct Given {
    /// `block` or `allow`; a grant has a limit instead.
    pub kind: String,
    /// A name, or `*` for every rule that has this key.
    pub rule: String,
    /// The key.
    pub key: String,
    /// The attribute that the key is for.
    pub by: Option<String>,
    /// Seconds, or a text such as `1h`.
    pub duration: Option<Either<f64, String>>,
    /// Seconds since the epoch.
    pub until: Option<f64>,
    /// Why.
    pub reason: Option<String>,
    /// Who makes it.
    pub made_by: Option<String>,
    /// Of a grant: the limit.
    pub limit: Option<String>,
    /// Of a grant: the burst.
    pub burst: Option<u32>,
}

impl Given {
    pub(crate) fn ask(self) -> Result<Ask, Raised> {
        let Given { kind, rule, key, by, duration, until, reason, made_by, limit, burst } = self;
        let kind = match (limit, kind.as_str()) {
            (Some(limit), _) => ExceptionKind::Grant(Grant { limit, burst }),
            (None, "allow") => ExceptionKind::Allow,
            (None, _) => ExceptionKind::Block,
        };
        let end = End::of(duration.map(span).transpose()?, until.map(timestamp).transpose()?).map_err(raise)?;
        let exception = Exception { reason, made_by, ..Exception::new(&rule, named_key(key, by), kind) };
        Ok(Ask::Except(Box::new(exception), end))
    }
}

/// A key, and the attribute that it is for.
pub(crate) fn named_key(key: String, by: Option<String>) -> NamedKey {
    NamedKey::from(key).by(by.as_deref().unwrap_or_default())
}

fn span(duration: Either<f64, String>) -> Result<Span, Raised> {
    match duration {
        Either::A(seconds) => micros(seconds).map(Span::from_micros).ok_or_else(|| {
            misused(format!("duration: {seconds} is not a duration; write seconds, or a string such as \"1h\""))
        }),
        Either::B(text) => parse_span(&text).map_err(|error| misused(format!("duration: {error}"))),
    }
}

fn timestamp(seconds: f64) -> Result<Timestamp, Raised> {
    let is_time = micros(seconds).map(Timestamp::from_micros);
    is_time.ok_or_else(|| misused("until: is not a time; give a valid Date"))
}

fn micros(seconds: f64) -> Option<u64> {
    let micros = (seconds * 1e6).round();
    (micros >= 0.0 && micros <= Span::MAX.as_micros() as f64).then_some(micros as u64)
}

/// An exception in force. Times are in milliseconds since the epoch, as JavaScript counts them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'e> {
    rule: &'e str,
    key: &'e str,
    by: Option<String>,
    kind: &'static str,
    limit: Option<&'e str>,
    burst: Option<u32>,
    since: f64,
    until: Option<f64>,
    reason: Option<&'e str>,
    made_by: Option<&'e str>,
}

impl<'e> Shown<'e> {
    fn new(exception: &'e Exception) -> Shown<'e> {
        let grant = match &exception.kind {
            ExceptionKind::Grant(grant) => Some(grant),
            ExceptionKind::Block | ExceptionKind::Allow => None,
        };
        Shown {
            rule: exception.rule.as_deref().unwrap_or("*"),
            key: &exception.key,
            by: (!exception.by.is_empty()).then(|| exception.by.to_string()),
            kind: exception.kind.name(),
            limit: grant.map(|grant| grant.limit.as_str()),
            burst: grant.and_then(|grant| grant.burst),
            since: milliseconds(exception.since),
            until: exception.until.map(milliseconds),
            reason: exception.reason.as_deref(),
            made_by: exception.made_by.as_deref(),
        }
    }
}

fn milliseconds(at: Timestamp) -> f64 {
    at.as_micros() as f64 / 1e3
}

/// Exceptions as a JSON list.
pub(crate) fn shown<'e>(exceptions: impl IntoIterator<Item = &'e Exception>) -> String {
    // Strings and finite numbers: serializing them cannot fail.
    serde_json::to_string(&exceptions.into_iter().map(Shown::new).collect::<Vec<_>>()).unwrap_or_default()
}
