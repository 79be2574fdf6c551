//! Verdicts as the API answers them.

mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::HeaderMap;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use tollkeeper::{Algorithm, Annotation, Overloaded, Row, Source, Span, Verdict};

use super::hold::HoldToken;
use crate::seal::Seal;

/// The answer for one request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Verdict")]
pub(crate) struct CheckAnswer<'v> {
    /// Whether the request may pass.
    allowed: bool,
    /// The enforced rule that makes it wait longest; null when it may pass.
    limiting: Option<&'v str>,
    /// Milliseconds until the same request passes, rounded up; 0 when it may pass, null when it never can.
    retry_after_ms: Option<u64>,
    /// What answered.
    #[schemars(extend("enum" = Source::ALL.map(Source::name)))]
    source: &'static str,
    /// One row per rule that applied, in the order of the rules file.
    rules: Vec<RuleAnswer<'v>>,
    /// The soft limits (`mode: annotate`) that the request is over, if any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<AnnotationAnswer<'v>>,
    /// Only if the request asked for them: limit headers, and `retry-after` on a denial that ends, for the caller's
    /// own response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HeadersAnswer")]
    headers: Option<HeadersAnswer>,
}

/// A soft limit that the request is over.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Annotation")]
struct AnnotationAnswer<'v> {
    /// The rule's name.
    rule: &'v str,
    /// The burst of a bucket, or N of a window.
    limit: u32,
    /// How much of the request's cost did not fit.
    over_by: u32,
    /// Milliseconds until the request would have fit, rounded up; null if never.
    retry_after_ms: Option<u64>,
}

impl<'v> From<Annotation<'v>> for AnnotationAnswer<'v> {
    fn from(Annotation { rule, limit, over_by, retry_after }: Annotation<'v>) -> Self {
        AnnotationAnswer { rule, limit, over_by, retry_after_ms: retry_after.map(Span::as_millis_ceil) }
    }
}

/// Headers by name, in lower case.
#[derive(Debug)]
pub(crate) struct HeadersAnswer(pub(crate) HeaderMap);

impl Serialize for HeadersAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default())))
    }
}

impl JsonSchema for HeadersAnswer {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Headers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, String>::json_schema(generator)
    }
}

/// What one rule says on its own.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Decision")]
struct RuleAnswer<'v> {
    /// The rule's name.
    rule: &'v str,
    /// The rule's label, if it has one.
    scope: Option<&'v str>,
    /// Which of the rule's buckets.
    key: &'v str,
    /// Whether this rule alone lets the request pass.
    allowed: bool,
    /// A shadow rule reports but never denies.
    shadow: bool,
    /// `annotate` for a soft limit, which never denies either.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    mode: Option<&'static str>,
    /// The burst of a bucket, or N of a window.
    limit: u32,
    /// Whole tokens left after this request.
    remaining: u32,
    /// Milliseconds until this rule lets the same request pass, rounded up; 0 when it does, null when it never can.
    retry_after_ms: Option<u64>,
    /// Milliseconds until the bucket is full again, rounded up.
    reset_after_ms: u64,
    /// `leaky_bucket` only: milliseconds until the request's turn, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    delay_ms: Option<u64>,
    /// `concurrency` only: identifies the slot that was taken, and cannot be guessed; pass it to /v1/release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HoldToken")]
    hold: Option<HoldToken>,
    /// `block`, `allow` or `grant`, if there is an exception for this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    exception: Option<&'static str>,
    /// The rule was not asked, because an exception from another rule denies the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unasked: bool,
}

impl<'v> CheckAnswer<'v> {
    /// With the headers, if they were asked for.
    pub(crate) fn new(verdict: &'v Verdict, headers: Option<HeadersAnswer>, seal: &Seal) -> Self {
        CheckAnswer {
            allowed: verdict.is_allowed(),
            limiting: verdict.limiting().map(|row| row.charge.rule.name()),
            retry_after_ms: verdict.retry_after().map(Span::as_millis_ceil),
            source: verdict.source().name(),
            rules: verdict.rows().iter().map(|row| RuleAnswer::new(row, seal)).collect(),
            annotations: verdict.annotations().map(AnnotationAnswer::from).collect(),
            headers,
        }
    }
}

impl<'v> RuleAnswer<'v> {
    fn new(row: &'v Row, seal: &Seal) -> Self {
        let (rule, decision) = (&*row.charge.rule, &row.decision);
        RuleAnswer {
            rule: rule.name(),
            scope: rule.scope(),
            key: &row.charge.key.value,
            allowed: decision.is_allowed(),
            shadow: rule.is_shadow(),
            mode: rule.annotates().then_some("annotate"),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after().map(Span::as_millis_ceil),
            reset_after_ms: decision.reset_after.as_millis_ceil(),
            delay_ms: delay(row).map(Span::as_millis_ceil),
            hold: HoldToken::of(row, seal),
            exception: row.charge.exception().map(|exception| exception.kind.name()),
            unasked: row.is_unasked(),
        }
    }
}

/// Answers in the order of the checks.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Verdicts")]
pub(crate) struct BatchAnswer<'v> {
    /// One verdict per check; each check saw the ones before it.
    pub(crate) results: Vec<BatchResult<'v>>,
}

/// What became of one check of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "BatchResult")]
pub(crate) enum BatchResult<'v> {
    Decided(CheckAnswer<'v>),
    Shed(ShedAnswer),
}

/// A check of a batch that was neither allowed nor denied, because too many were waiting for a decision.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Shed")]
pub(crate) struct ShedAnswer {
    /// `overloaded`.
    error: &'static str,
    /// Milliseconds until it should be tried again.
    retry_after_ms: u64,
}

impl From<&Overloaded> for ShedAnswer {
    fn from(overloaded: &Overloaded) -> Self {
        ShedAnswer { error: "overloaded", retry_after_ms: Span::from(overloaded.retry_after).as_millis_ceil() }
    }
}

/// Rows of a leaky bucket always have the wait, even if it is zero.
pub(super) fn delay(row: &Row) -> Option<Span> {
    (row.charge.quota().algorithm() == Algorithm::LeakyBucket).then(|| row.decision.delay())
}
