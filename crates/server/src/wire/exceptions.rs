//! Exceptions as they are asked for and shown.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Display;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::{self, DeserializeSeed as _, MapAccess};
use tollkeeper::{Exception, ExceptionKind, Grant, Span, Timestamp};

use super::moment::{PATTERN, read_moment, write_moment};
use super::strict::{At, Invalid, Name, Text, Want, Wanted, Whole, once, quoted, unknown};

/// The name that means every rule.
const EVERY: &str = "*";
const FIELDS: &[&str] = &["rule", "key", "kind", "limit", "burst", "for_ms", "until", "reason"];
const KINDS: &[&str] = &["block", "allow", "grant"];
const EXAMPLE: &str = r#"{"rule": "free-user", "key": "42", "kind": "block", "for_ms": 3600000, "reason": "scraper"}"#;

/// An exception to be made.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ExceptionRequest", transform = needs_key_and_kind)]
#[allow(dead_code, reason = "some fields are only described here")]
pub(crate) struct ExceptionBody<'b> {
    /// The rule's name, or `*` for every rule that has this key.
    #[schemars(with = "String", extend("default" = "*"))]
    rule: Option<Cow<'b, str>>,
    /// The key's text, as in the row of a check.
    #[schemars(with = "String", length(min = 1, max = 1024))]
    key: Option<Cow<'b, str>>,
    /// `block` denies, `allow` lets pass without a charge, `grant` gives another limit.
    #[schemars(with = "String", extend("enum" = KINDS))]
    kind: Option<Cow<'b, str>>,
    /// For a grant: the limit, such as `1000/min`.
    #[schemars(with = "String")]
    limit: Option<Cow<'b, str>>,
    /// For a grant: the burst, unless it is the count of the limit.
    #[schemars(with = "u32", range(min = 1))]
    burst: Option<u64>,
    /// For how many milliseconds; without an end when neither this nor `until` is given.
    #[schemars(with = "u64", range(min = 1))]
    for_ms: Option<u64>,
    /// Until when, in UTC.
    #[schemars(with = "String", regex(pattern = PATTERN))]
    until: Option<Cow<'b, str>>,
    /// Why, for people.
    #[schemars(with = "String", length(max = 1024))]
    reason: Option<Cow<'b, str>>,
}

fn needs_key_and_kind(schema: &mut schemars::Schema) {
    schema.insert("required".into(), serde_json::json!(["key", "kind"]));
}

/// Reads an exception that is to be in force from `now` on.
pub(crate) fn parse_exception(text: &[u8], now: Timestamp) -> Result<Exception, Invalid> {
    let complaint = RefCell::new(None);
    let at = At::whole(&complaint);
    let whole = |problem: String| Invalid { field: String::new(), problem };
    if text.trim_ascii().is_empty() {
        return Err(whole(format!("there is nothing here; send for example {EXAMPLE}")));
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = Want(Body(at)).deserialize(&mut json);
    match read.and_then(|body| json.end().map(|()| body)) {
        Ok(body) => body.understand(at, now),
        Err(syntax) => Err(complaint
            .take()
            .unwrap_or_else(|| whole(format!("this is not JSON: {syntax}; send for example {EXAMPLE}")))),
    }
}

impl ExceptionBody<'_> {
    fn understand(self, at: At<'_>, now: Timestamp) -> Result<Exception, Invalid> {
        let missing =
            |name: &'static str| at.field(name).invalid(format_args!("is missing; send for example {EXAMPLE}"));
        let key = self.key.ok_or_else(|| missing("key"))?;
        let kind = self.kind.ok_or_else(|| missing("kind"))?;
        let kind = match (&*kind, self.limit) {
            ("grant", Some(limit)) => {
                let burst = self.burst.map(|burst| u32::try_from(burst).unwrap_or(u32::MAX));
                ExceptionKind::Grant(Grant { limit: limit.into_owned(), burst })
            }
            ("grant", None) => {
                return Err(at.field("limit").invalid("is missing; a grant needs one, such as 1000/min"));
            }
            ("block" | "allow", Some(_)) => return Err(at.field("limit").invalid("is for a grant; leave it out")),
            ("block" | "allow", None) if self.burst.is_some() => {
                return Err(at.field("burst").invalid("is for a grant; leave it out"));
            }
            ("block", None) => ExceptionKind::Block,
            ("allow", None) => ExceptionKind::Allow,
            (other, _) => return Err(at.field("kind").invalid(unknown(other, KINDS))),
        };
        let until = match (self.for_ms, self.until) {
            (Some(_), Some(_)) => return Err(at.field("until").invalid("says the same as for_ms; leave one out")),
            (Some(0), None) => return Err(at.field("for_ms").invalid("is 0, which is over at once; use at least 1")),
            (Some(ms), None) => Some(now + Span::from_micros(ms * 1_000)),
            (None, Some(text)) => Some(read_moment(&text).ok_or_else(|| {
                let problem = format!("{} is no moment in UTC; write for example 2030-01-31T12:00:00Z", quoted(&text));
                at.field("until").invalid(problem)
            })?),
            (None, None) => None,
        };
        let mut exception = Exception::new(self.rule.as_deref().unwrap_or(EVERY), key, kind);
        (exception.until, exception.reason) = (until, self.reason.map(Cow::into_owned));
        Ok(exception)
    }
}

struct Body<'p>(At<'p>);

impl<'b> Wanted<'b> for Body<'_> {
    type Value = ExceptionBody<'b>;

    fn refuse<E: de::Error>(self, seen: impl Display) -> E {
        self.0.refuse(format_args!("an object such as {EXAMPLE} is wanted here, not {seen}"))
    }

    fn object<A: MapAccess<'b>>(self, mut object: A) -> Result<ExceptionBody<'b>, A::Error> {
        let mut body = ExceptionBody::default();
        while let Some(name) = object.next_key_seed(Want(Name))? {
            let at = self.0.field(&name);
            match &*name {
                "rule" => once(at, &mut body.rule, &mut object, Text(at))?,
                "key" => once(at, &mut body.key, &mut object, Text(at))?,
                "kind" => once(at, &mut body.kind, &mut object, Text(at))?,
                "limit" => once(at, &mut body.limit, &mut object, Text(at))?,
                "until" => once(at, &mut body.until, &mut object, Text(at))?,
                "reason" => once(at, &mut body.reason, &mut object, Text(at))?,
                "burst" => {
                    once(at, &mut body.burst, &mut object, Whole { at, max: u32::MAX.into(), what: "tokens" })?;
                }
                "for_ms" => {
                    // As long as any wait that is counted.
                    let want = Whole { at, max: Span::MAX.as_micros() / 1_000, what: "milliseconds" };
                    once(at, &mut body.for_ms, &mut object, want)?;
                }
                _ => return Err(at.refuse(unknown(&name, FIELDS))),
            }
        }
        Ok(body)
    }
}

/// An exception in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Exception")]
pub(crate) struct ExceptionView {
    /// The rule's name, or `*` for every rule that has this key.
    rule: String,
    /// The key's text.
    key: String,
    /// What it does.
    #[schemars(extend("enum" = KINDS))]
    kind: &'static str,
    /// For a grant: the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    limit: Option<String>,
    /// For a grant: the burst, where it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    burst: Option<u32>,
    /// Since when, in UTC.
    since: String,
    /// Until when, in UTC; null when it has no end.
    until: Option<String>,
    /// Why, if somebody said so.
    reason: Option<String>,
}

impl From<Exception> for ExceptionView {
    fn from(exception: Exception) -> ExceptionView {
        let Exception { rule, key, kind, since, until, reason, former: _ } = exception;
        let name = kind.name();
        let (limit, burst) = match kind {
            ExceptionKind::Grant(Grant { limit, burst }) => (Some(limit), burst),
            _ => (None, None),
        };
        let rule = rule.unwrap_or_else(|| EVERY.into());
        let (since, until) = (write_moment(since), until.map(write_moment));
        ExceptionView { rule, key, kind: name, limit, burst, since, until, reason }
    }
}

/// The exceptions in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Exceptions")]
pub(crate) struct ExceptionsAnswer {
    /// By rule and key.
    pub(crate) exceptions: Vec<ExceptionView>,
}

/// Whether an exception was lifted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Lifted")]
pub(crate) struct LiftedAnswer {
    /// False when there was none.
    pub(crate) lifted: bool,
}
