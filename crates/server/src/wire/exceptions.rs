//! Exceptions in requests and answers.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper::{Exception, ExceptionKind, Grant, KeyedBy, NamedKey, Span, Timestamp};

use crate::moment::{self, Moment};
use crate::strict::{self, Invalid, Whole, given};

/// The name that means every rule.
const EVERY: &str = "*";
const EXAMPLE: &str = r#"{"rule": "free-user", "key": "42", "kind": "block", "for_ms": 3600000, "reason": "scraper"}"#;
/// The longest duration that can be counted.
const MAX_FOR_MS: u64 = Span::MAX.as_micros() / 1_000;
const MAX_BURST: u64 = u32::MAX as u64;

/// An exception to make.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ExceptionRequest")]
pub(crate) struct ExceptionBody<'b> {
    /// The rule's name, or `*` for every rule that uses this key.
    #[serde(default, borrow, deserialize_with = "given")]
    #[schemars(with = "String", extend("default" = EVERY))]
    rule: Option<Cow<'b, str>>,
    /// The key's text, as in the row of a check.
    #[serde(borrow)]
    #[schemars(with = "String", length(min = 1, max = 1024))]
    key: Cow<'b, str>,
    /// The attribute that the key is for, where the rule's key has alternatives such as `{api_key|ip}`; with several
    /// such placeholders one for each, as in `api_key,tenant`. By default `ip` for an address, and the only other
    /// alternative for anything else.
    #[serde(default, borrow, deserialize_with = "given")]
    #[schemars(with = "String", length(min = 1, max = 1024))]
    by: Option<Cow<'b, str>>,
    /// `block` denies, `allow` lets pass without a charge, `grant` gives another limit.
    kind: Kind,
    /// For a grant: the limit, such as `1000/min`.
    #[serde(default, borrow, deserialize_with = "given")]
    #[schemars(with = "String")]
    limit: Option<Cow<'b, str>>,
    /// For a grant: the burst; by default the count of the limit.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Whole<1, MAX_BURST>")]
    burst: Option<Whole<1, MAX_BURST>>,
    /// For how many milliseconds; it does not end when neither this nor `until` is given.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Whole<1, MAX_FOR_MS>")]
    for_ms: Option<Whole<1, MAX_FOR_MS>>,
    /// Until when.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Moment")]
    until: Option<Moment>,
    /// Why, for people.
    #[serde(default, borrow, deserialize_with = "given")]
    #[schemars(with = "String", length(max = 1024))]
    reason: Option<Cow<'b, str>>,
}

/// What an exception does.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Kind {
    Block,
    Allow,
    Grant,
}

/// Parses an exception that is in force from `now` on.
pub(crate) fn parse_exception(text: &[u8], now: Timestamp) -> Result<Exception, Invalid> {
    let body: ExceptionBody<'_> = strict::json(text, EXAMPLE)?;
    let kind = match (body.kind, body.limit) {
        (Kind::Grant, Some(limit)) => {
            let burst = body.burst.map(|burst| u32::try_from(burst.0).unwrap_or(u32::MAX));
            ExceptionKind::Grant(Grant { limit: limit.into_owned(), burst })
        }
        (Kind::Grant, None) => return Err(Invalid::new("limit", "is missing; a grant needs one, such as 1000/min")),
        (_, Some(_)) => return Err(Invalid::new("limit", "is for a grant; leave it out")),
        (_, None) if body.burst.is_some() => return Err(Invalid::new("burst", "is for a grant; leave it out")),
        (Kind::Block, None) => ExceptionKind::Block,
        (Kind::Allow, None) => ExceptionKind::Allow,
    };
    let until = match (body.for_ms, body.until) {
        (Some(_), Some(_)) => return Err(Invalid::new("until", "cannot be combined with for_ms; leave one out")),
        (Some(for_ms), None) => Some(now + Span::from_micros(for_ms.0 * 1_000)),
        (None, until) => until.map(|Moment(at)| at),
    };
    let key = NamedKey::from(body.key).by(body.by.as_deref().unwrap_or_default());
    let mut exception = Exception::new(body.rule.as_deref().unwrap_or(EVERY), key, kind);
    (exception.until, exception.reason) = (until, body.reason.map(Cow::into_owned));
    Ok(exception)
}

/// An exception in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Exception")]
pub(crate) struct ExceptionView {
    /// The rule's name, or `*` for every rule that uses this key.
    rule: String,
    /// The key's text.
    key: String,
    /// The attribute that the key is for, where the rule's key has alternatives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    by: Option<String>,
    /// What it does.
    kind: Kind,
    /// For a grant: the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    limit: Option<String>,
    /// For a grant: the burst, if given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    burst: Option<u32>,
    /// Since when.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Moment")]
    since: Timestamp,
    /// Until when; null when it has no end.
    #[serde(serialize_with = "moment::serialize")]
    #[schemars(with = "Option<Moment>")]
    until: Option<Timestamp>,
    /// Why, if a reason was given.
    reason: Option<String>,
    /// Who made it: the given name, and how the caller authenticated.
    made_by: Option<String>,
}

impl From<Exception> for ExceptionView {
    fn from(exception: Exception) -> ExceptionView {
        let Exception { rule, key, by, kind, since, until, reason, made_by, former: _ } = exception;
        let (kind, limit, burst) = match kind {
            ExceptionKind::Block => (Kind::Block, None, None),
            ExceptionKind::Allow => (Kind::Allow, None, None),
            ExceptionKind::Grant(Grant { limit, burst }) => (Kind::Grant, Some(limit), burst),
        };
        let rule = rule.unwrap_or_else(|| EVERY.into());
        ExceptionView { rule, key, by: shown_by(&by), kind, limit, burst, since, until, reason, made_by }
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
    lifted: bool,
    /// The attribute that its key was for, where the rule's key has alternatives.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    by: Option<String>,
}

impl LiftedAnswer {
    pub(crate) fn new(lifted: Option<&Exception>) -> LiftedAnswer {
        LiftedAnswer { lifted: lifted.is_some(), by: lifted.and_then(|exception| shown_by(&exception.by)) }
    }
}

/// `None` if there was nothing to choose.
pub(super) fn shown_by(by: &KeyedBy) -> Option<String> {
    (!by.is_empty()).then(|| by.to_string())
}
