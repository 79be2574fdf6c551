//! What goes over the wire as JSON: requests as they are read, verdicts as they are answered.
//!
//! The API and `replay` share these types, so a request means the same to both. Every type also describes itself for
//! `/openapi.json`.

mod attributes;
mod exceptions;
mod hold;
mod problem;
mod query;
mod request;
mod reservation;
mod rule;

pub(crate) use exceptions::{ExceptionBody, ExceptionView, ExceptionsAnswer, LiftedAnswer, parse_exception};
pub(crate) use hold::HoldToken;
pub(crate) use problem::{DenialAnswer, ProblemAnswer};
pub(crate) use query::{BucketChangeQuery, BucketQuery, ExceptionQuery, HistoryQuery, NoQuery, RulesChangeQuery};
pub(crate) use request::{
    Check, CheckBody, Release, Reserve, Settle, parse_check, parse_event, parse_release, parse_reserve, parse_settle,
};
pub(crate) use reservation::{ReservationAnswer, ReserveAnswer, SettleAnswer};
pub(crate) use rule::{EditAnswer, HistoryAnswer, Rollback, parse_rollback, parse_rule, rule_schema};

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Algorithm, Descriptor, Inspected, Row, Rule, RuleSpec, Source, Span, Verdict};

use crate::audit::{Action, Violation};

/// One line of `replay`'s input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayEvent {
    /// When the request comes, in microseconds since the epoch.
    pub(crate) at_us: u64,
    /// The request.
    pub(crate) descriptor: Descriptor,
}

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
    /// Who answered.
    #[schemars(extend("enum" = Source::ALL.map(Source::name)))]
    source: &'static str,
    /// One row per rule that applied, in the order of the rules file.
    rules: Vec<RuleAnswer<'v>>,
}

/// What one rule says, alone.
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
    /// A shadow rule reports and never denies.
    shadow: bool,
    /// The burst of a bucket, or N of a window.
    limit: u32,
    /// Whole tokens left after this request.
    remaining: u32,
    /// Milliseconds until this rule lets the same request pass, rounded up; 0 when it does, null when it never can.
    retry_after_ms: Option<u64>,
    /// Milliseconds until the bucket is as if never used, rounded up.
    reset_after_ms: u64,
    /// `leaky_bucket` only: milliseconds until the request's turn, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    delay_ms: Option<u64>,
    /// `concurrency` only: names the slot that was taken; give it to /v1/release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HoldToken")]
    hold: Option<HoldToken>,
    /// `block`, `allow` or `grant`, where an exception was made for this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    exception: Option<&'static str>,
    /// The rule was not asked, because an exception from another rule denies the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unasked: bool,
}

impl<'v> From<&'v Verdict> for CheckAnswer<'v> {
    fn from(verdict: &'v Verdict) -> Self {
        CheckAnswer {
            allowed: verdict.is_allowed(),
            limiting: verdict.limiting().map(|row| row.charge.rule.name()),
            retry_after_ms: verdict.retry_after().map(Span::as_millis_ceil),
            source: verdict.source().name(),
            rules: verdict.rows().iter().map(RuleAnswer::from).collect(),
        }
    }
}

impl<'v> From<&'v Row> for RuleAnswer<'v> {
    fn from(row: &'v Row) -> Self {
        let (rule, decision) = (&*row.charge.rule, &row.decision);
        RuleAnswer {
            rule: rule.name(),
            scope: rule.scope(),
            key: &row.charge.key.value,
            allowed: decision.is_allowed(),
            shadow: !rule.is_enforced(),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after().map(Span::as_millis_ceil),
            reset_after_ms: decision.reset_after.as_millis_ceil(),
            delay_ms: delay(row).map(Span::as_millis_ceil),
            hold: HoldToken::of(row),
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
    pub(crate) results: Vec<CheckAnswer<'v>>,
}

/// A verdict as one line of `replay`'s output, to the microsecond.
#[derive(Serialize)]
struct ReplayLine<'v> {
    at_us: u64,
    allowed: bool,
    limiting: Option<&'v str>,
    retry_after_us: Option<u64>,
    rules: Vec<ReplayRule<'v>>,
}

#[derive(Serialize)]
struct ReplayRule<'v> {
    rule: &'v str,
    scope: Option<&'v str>,
    key: &'v str,
    allowed: bool,
    shadow: bool,
    limit: u32,
    remaining: u32,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<HoldToken>,
}

/// A verdict as one line of `replay`'s output, without the line's end.
pub(crate) fn replay_line(at_us: u64, verdict: &Verdict) -> String {
    let line = ReplayLine {
        at_us,
        allowed: verdict.is_allowed(),
        limiting: verdict.limiting().map(|row| row.charge.rule.name()),
        retry_after_us: verdict.retry_after().map(Span::as_micros),
        rules: verdict.rows().iter().map(ReplayRule::from).collect(),
    };
    serde_json::to_string(&line).expect("a verdict is always JSON")
}

impl<'v> From<&'v Row> for ReplayRule<'v> {
    fn from(row: &'v Row) -> Self {
        let (rule, decision) = (&*row.charge.rule, &row.decision);
        ReplayRule {
            rule: rule.name(),
            scope: rule.scope(),
            key: &row.charge.key.value,
            allowed: decision.is_allowed(),
            shadow: !rule.is_enforced(),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after().map(Span::as_micros),
            reset_after_us: decision.reset_after.as_micros(),
            delay_us: delay(row).map(Span::as_micros),
            hold: HoldToken::of(row),
        }
    }
}

/// Rows of a leaky bucket always tell the wait, also when it is zero.
fn delay(row: &Row) -> Option<Span> {
    (row.charge.quota().algorithm() == Algorithm::LeakyBucket).then(|| row.decision.delay())
}

/// Whether a slot was given back.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Released")]
pub(crate) struct ReleaseAnswer {
    /// False when the slot was free already: released before, or its hold expired.
    pub(crate) released: bool,
}

/// Whether a bucket was forgotten.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reset")]
pub(crate) struct ResetAnswer {
    /// False when there was nothing to forget.
    pub(crate) reset: bool,
}

/// A bucket as it is now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Bucket")]
pub(crate) struct KeyAnswer<'r> {
    /// The rule's name.
    rule: &'r str,
    /// The rule's label, if it has one.
    scope: Option<&'r str>,
    /// Which of the rule's buckets.
    key: &'r str,
    /// How requests are counted.
    algorithm: &'static str,
    /// Algorithm and numbers, for people.
    quota: String,
    /// The burst of a bucket, or N of a window.
    limit: u32,
    #[serde(flatten)]
    level: Level,
    /// The buckets of each alternative, when the rule's key has alternatives such as `{api_key|ip}` and several of them
    /// are in use under this text. The answer itself tells the one that is used most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<VariantAnswer>,
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Level {
    /// Whole tokens left.
    remaining: u32,
    /// Milliseconds until a request passes, rounded up; 0 when one passes now.
    retry_after_ms: Option<u64>,
    /// Milliseconds until the bucket is as if never used, rounded up.
    reset_after_ms: u64,
}

/// One of several buckets that share a text.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Variant")]
struct VariantAnswer {
    /// Which alternatives of the key's template were taken; 0 when each placeholder took its first.
    variant: u16,
    #[serde(flatten)]
    level: Level,
}

impl Level {
    fn of(bucket: &Inspected) -> Level {
        let decision = &bucket.decision;
        Level {
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after().map(Span::as_millis_ceil),
            reset_after_ms: decision.reset_after.as_millis_ceil(),
        }
    }
}

impl<'r> KeyAnswer<'r> {
    /// The buckets of a rule that share a key's text.
    pub(crate) fn new(rule: &'r Rule, key: &'r str, buckets: &[Inspected]) -> KeyAnswer<'r> {
        let used = |bucket: &&Inspected| {
            bucket.decision.remaining < bucket.decision.limit || bucket.decision.reset_after > Span::ZERO
        };
        let in_use: Vec<&Inspected> = buckets.iter().filter(used).collect();
        // The most used: least left, and longest to go.
        let most = in_use.iter().copied().min_by_key(|bucket| {
            (bucket.decision.remaining, std::cmp::Reverse(bucket.decision.reset_after), bucket.charge.key.variant)
        });
        let quota = most.or(buckets.first()).map_or(rule.quota(), |bucket| bucket.charge.quota());
        let limit = quota.limit();
        let level = most.map_or(Level { remaining: limit, retry_after_ms: Some(0), reset_after_ms: 0 }, Level::of);
        let variants = if in_use.len() < 2 { Vec::new() } else { in_use };
        KeyAnswer {
            rule: rule.name(),
            scope: rule.scope(),
            key,
            algorithm: quota.algorithm().name(),
            quota: quota.to_string(),
            limit,
            level,
            variants: variants
                .into_iter()
                .map(|bucket| VariantAnswer { variant: bucket.charge.key.variant, level: Level::of(bucket) })
                .collect(),
        }
    }
}

/// The rules in force.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Rules")]
pub(crate) struct RulesAnswer<'r> {
    /// In the order of the rules file.
    pub(crate) rules: Vec<RuleView<'r>>,
    /// `file`, or `postgres`: only there they can be changed.
    #[schemars(extend("enum" = ["file", "postgres"]))]
    pub(crate) source: &'static str,
    /// The version in force, with Postgres.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub(crate) version: Option<i64>,
    /// Why newer rules are not in force, if there are any or nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) problem: Option<String>,
}

/// A rule as written, with its quota as understood.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RuleInForce")]
pub(crate) struct RuleView<'r> {
    #[serde(flatten)]
    spec: &'r RuleSpec,
    /// Algorithm and numbers as understood, for people.
    quota: String,
}

impl<'r> From<&'r Rule> for RuleView<'r> {
    fn from(rule: &'r Rule) -> Self {
        RuleView { spec: rule.spec(), quota: rule.quota().to_string() }
    }
}

/// Violations, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Violations")]
pub(crate) struct ViolationsAnswer {
    /// As many as were asked for.
    pub(crate) violations: Vec<Violation>,
    /// The `cursor` with which to ask for more; absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next: Option<String>,
    /// Denials of this process that are missing because there was no room.
    pub(crate) dropped: u64,
    /// Where they were kept: `memory` or `postgres`.
    #[schemars(extend("enum" = ["memory", "postgres"]))]
    pub(crate) source: &'static str,
}

/// What was done to single keys, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Actions")]
pub(crate) struct ActionsAnswer {
    /// As many as were asked for.
    pub(crate) actions: Vec<Action>,
    /// Actions of this process that are missing because there was no room.
    pub(crate) dropped: u64,
    /// Where they were kept: `memory` or `postgres`.
    #[schemars(extend("enum" = ["memory", "postgres"]))]
    pub(crate) source: &'static str,
}

/// Whether the service is well.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(crate) struct HealthAnswer {
    /// `ok`.
    pub(crate) status: &'static str,
    /// Only when newer rules cannot be had: the last good ones decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) rules: Option<String>,
}

/// An allowed request, for proxies that look at the status only.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Authorized")]
pub(crate) struct AuthorizeAnswer {
    /// Always true: a denied request is answered with the status of a denial.
    pub(crate) allowed: bool,
    /// Milliseconds to wait until the request's turn, when a leaky bucket paces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
}

#[cfg(test)]
mod tests;
