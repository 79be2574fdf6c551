//! A rule as people write it. [`crate::Rule`] is the validated form.

mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::quota::{Algorithm, Quota};

/// A rule as written. The field names are those of the rules file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Unique, at most 100 characters; appears in headers, metrics and the audit.
    pub name: String,
    /// A label such as user, endpoint, ip, tenant or global.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Attributes that must match: a value, a glob, a network, `!` before one for anything else, null for absent, or a
    /// list of them. A path may name segments, as in `/users/{id}`, for the key to use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, OneOrMany>,
    /// One bucket per value of this template.
    pub key: String,
    /// `10/s`, `6,000/min`, `5/90s`; for `concurrency` a plain number. `1000/week`, `/month` and `/year` with
    /// `fixed_window` follow the calendar.
    pub limit: Scalar,
    /// How much may pass at once after idling; the count of `limit` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Scalar>,
    /// How requests are counted.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// For calendar windows: their time zone, such as `Europe/Berlin`; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// For calendar windows: the day they start on, 1 by default. A day of the month (or the last day of a shorter
    /// month), of January, or of the week, where 1 is Monday.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 31)))]
    pub anchor_day: Option<u32>,
    /// For `concurrency`: unreleased slots expire after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// `auto`, or how many tokens an instance leases from a shared store at a time, to spend without further calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Scalar>,
    /// A number, the name of the attribute that carries it, or a list of cases such as `{ when: { method: POST, path:
    /// /reports/* }, cost: 10 }` of which the first match counts, or `{ from: response.x-tokens-used, estimate: 500
    /// }` for a cost known only afterwards.
    #[serde(default)]
    pub cost: CostSpec,
    /// What happens to requests over the limit.
    #[serde(default)]
    pub mode: Enforcement,
    /// `false` keeps the rule out of the limit headers.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub headers: bool,
    /// What to answer while the store is unreachable: `local`, `open` or `closed`.
    #[serde(default)]
    pub on_store_failure: FailurePolicy,
    /// The response to denied HTTP requests, instead of a problem document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<DenySpec>,
    /// `false` switches the rule off.
    #[serde(default = "yes")]
    pub active: bool,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An active rule without name, key and limit; complete it with `..RuleSpec::default()`.
impl Default for RuleSpec {
    fn default() -> Self {
        RuleSpec {
            name: String::new(),
            scope: None,
            when: BTreeMap::new(),
            key: String::new(),
            limit: Scalar::default(),
            burst: None,
            algorithm: Algorithm::default(),
            timezone: None,
            anchor_day: None,
            hold: None,
            lease: None,
            cost: CostSpec::default(),
            mode: Enforcement::default(),
            headers: yes(),
            on_store_failure: FailurePolicy::default(),
            deny: None,
            active: yes(),
            description: None,
        }
    }
}

/// Builds a rule in code: each method sets the field of its name, [`RuleSpec::build`] validates.
///
/// ```
/// use tollkeeper_core::{Algorithm, Rule};
/// let rule = Rule::new("exports")
///     .key("{tenant}")
///     .limit("5")
///     .algorithm(Algorithm::Concurrency)
///     .when("path", ["/exports/*", "/reports/*"])
///     .shadow()
///     .build()?;
/// assert!(!rule.is_enforced());
/// # Ok::<(), tollkeeper_core::RuleErrors>(())
/// ```
impl RuleSpec {
    /// One bucket per value of this template, such as `{user_id}` or `{api_key|ip}`.
    #[must_use]
    pub fn key(mut self, template: impl Into<String>) -> RuleSpec {
        self.key = template.into();
        self
    }

    /// Limit, burst, algorithm and hold of this quota.
    #[must_use]
    pub fn quota(mut self, quota: Quota) -> RuleSpec {
        self.algorithm = quota.algorithm();
        (self.limit, self.hold) = match quota.algorithm() {
            Algorithm::Concurrency => (quota.count().to_string().into(), Some(quota.period().to_string())),
            _ => match quota.calendar() {
                Some(calendar) => (format!("{}/{}", quota.count(), calendar.unit()).into(), None),
                None => (format!("{}/{}", quota.count(), quota.period()).into(), None),
            },
        };
        let calendar = quota.calendar();
        self.timezone = calendar.map(|calendar| calendar.zone_name().to_string());
        self.anchor_day = calendar.map(|calendar| calendar.first_day().into()).filter(|day| *day != 1);
        self.burst = quota.algorithm().has_burst().then(|| Scalar::Number(quota.limit().into()));
        self
    }

    /// Such as `10/s`; for `concurrency` a plain number.
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Scalar>) -> RuleSpec {
        self.limit = limit.into();
        self
    }

    /// How much may pass at once after idling.
    #[must_use]
    pub fn burst(mut self, burst: impl Into<Scalar>) -> RuleSpec {
        self.burst = Some(burst.into());
        self
    }

    /// How requests are counted.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> RuleSpec {
        self.algorithm = algorithm;
        self
    }

    /// For calendar windows: their time zone, such as `Europe/Berlin`.
    #[must_use]
    pub fn timezone(mut self, name: impl Into<String>) -> RuleSpec {
        self.timezone = Some(name.into());
        self
    }

    /// For calendar windows: the day they start on.
    #[must_use]
    pub fn anchor_day(mut self, day: u32) -> RuleSpec {
        self.anchor_day = Some(day);
        self
    }

    /// For `concurrency`: unreleased slots expire after this, such as `30s`.
    #[must_use]
    pub fn hold(mut self, hold: impl Into<String>) -> RuleSpec {
        self.hold = Some(hold.into());
        self
    }

    /// What a request costs: a number, or the name of the attribute that carries it.
    #[must_use]
    pub fn cost(mut self, cost: impl Into<CostSpec>) -> RuleSpec {
        self.cost = cost.into();
        self
    }

    /// Adds an attribute that must match: a value, a glob, or a list of them.
    #[must_use]
    pub fn when(mut self, attribute: impl Into<String>, value: impl Into<OneOrMany>) -> RuleSpec {
        self.when.insert(attribute.into(), value.into());
        self
    }

    /// A label.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> RuleSpec {
        self.scope = Some(scope.into());
        self
    }

    /// Whether it may deny.
    #[must_use]
    pub fn mode(mut self, mode: Enforcement) -> RuleSpec {
        self.mode = mode;
        self
    }

    /// The rule counts and reports, but never denies.
    #[must_use]
    pub fn shadow(self) -> RuleSpec {
        self.mode(Enforcement::Shadow)
    }

    /// Requests over the limit pass, marked for the upstream.
    #[must_use]
    pub fn annotate(self) -> RuleSpec {
        self.mode(Enforcement::Annotate)
    }

    /// Whether limit headers show the rule.
    #[must_use]
    pub fn headers(mut self, are_shown: bool) -> RuleSpec {
        self.headers = are_shown;
        self
    }

    /// What to answer while the store is unreachable.
    #[must_use]
    pub fn on_store_failure(mut self, policy: FailurePolicy) -> RuleSpec {
        self.on_store_failure = policy;
        self
    }

    /// `auto`, or how many tokens an instance leases from a shared store at a time.
    #[must_use]
    pub fn lease(mut self, size: impl Into<Scalar>) -> RuleSpec {
        self.lease = Some(size.into());
        self
    }

    /// The response to denied HTTP requests, instead of a problem document.
    #[must_use]
    pub fn deny(mut self, deny: DenySpec) -> RuleSpec {
        self.deny = Some(deny);
        self
    }

    /// Whether it is switched on.
    #[must_use]
    pub fn active(mut self, active: bool) -> RuleSpec {
        self.active = active;
        self
    }

    /// A description for people.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> RuleSpec {
        self.description = Some(description.into());
        self
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// A number or a text; YAML allows both.
// Exhaustive on purpose: these are the two ways in which people write a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Scalar {
    /// A whole number.
    Number(u64),
    /// Anything in quotes, or anything that is not a number.
    Text(String),
}

impl Default for Scalar {
    fn default() -> Self {
        Scalar::Text(String::new())
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Scalar::Text(text.into())
    }
}

impl From<String> for Scalar {
    fn from(text: String) -> Self {
        Scalar::Text(text)
    }
}

impl From<u64> for Scalar {
    fn from(number: u64) -> Self {
        Scalar::Number(number)
    }
}

impl Scalar {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }
}

/// The response to denied HTTP requests. Limit headers and `Retry-After` are always sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DenySpec {
    /// The status, instead of `deny_status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 400, max = 599)))]
    pub status: Option<u16>,
    /// The content type of the body; `text/plain; charset=utf-8` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// A text with the placeholders `${rule}`, `${limit}`, `${remaining}`, `${retry_after}` (seconds) and
    /// `${retry_after_ms}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
pub enum CostSpec {
    /// A number, or the name of the attribute that carries it.
    One(Scalar),
    /// The first that matches; 1 if none does.
    Cases(Vec<CostCase>),
    /// Read from an attribute, and estimated until it is known.
    Estimated(EstimatedCost),
}

/// A cost known only afterwards: the estimate is charged, and corrected when the request is settled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EstimatedCost {
    /// The attribute that carries it; `response.NAME` is a header of the response, where the reverse proxy sees it.
    pub from: String,
    /// What is charged until the request has that attribute.
    pub estimate: u32,
}

/// What some requests cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CostCase {
    /// Attributes that must match, as in a rule. Without any, the case matches every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, OneOrMany>,
    /// A number, or the name of the attribute that carries it.
    pub cost: Scalar,
}

impl Default for CostSpec {
    fn default() -> Self {
        CostSpec::from(1)
    }
}

impl From<u64> for CostSpec {
    fn from(cost: u64) -> Self {
        CostSpec::One(Scalar::Number(cost))
    }
}

impl From<&str> for CostSpec {
    fn from(attribute: &str) -> Self {
        CostSpec::One(attribute.into())
    }
}

/// A pattern or a list of them.
// Exhaustive on purpose: one, or several.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum OneOrMany {
    /// One value or glob.
    One(MatchValue),
    /// Any of these.
    Many(Vec<MatchValue>),
}

/// A value to compare with. Attributes are strings, so `200` and `true` are taken as text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
#[non_exhaustive]
pub enum MatchValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Number(i64),
    /// A value, a glob, a network or a path with named segments.
    Text(String),
    /// `null`: the request does not have the attribute.
    Absent,
}

impl<T: Into<MatchValue>> From<T> for OneOrMany {
    fn from(value: T) -> Self {
        OneOrMany::One(value.into())
    }
}

impl<T: Into<MatchValue>, const N: usize> From<[T; N]> for OneOrMany {
    fn from(values: [T; N]) -> Self {
        OneOrMany::Many(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<MatchValue>> From<Vec<T>> for OneOrMany {
    fn from(values: Vec<T>) -> Self {
        OneOrMany::Many(values.into_iter().map(Into::into).collect())
    }
}

impl From<&str> for MatchValue {
    fn from(text: &str) -> Self {
        MatchValue::Text(text.into())
    }
}

impl From<String> for MatchValue {
    fn from(text: String) -> Self {
        MatchValue::Text(text)
    }
}

impl From<i64> for MatchValue {
    fn from(number: i64) -> Self {
        MatchValue::Number(number)
    }
}

impl From<bool> for MatchValue {
    fn from(value: bool) -> Self {
        MatchValue::Bool(value)
    }
}

impl MatchValue {
    /// The pattern; `None` for an absent attribute.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            MatchValue::Bool(value) => Some(value.to_string()),
            MatchValue::Number(value) => Some(value.to_string()),
            MatchValue::Text(value) => Some(value.clone()),
            MatchValue::Absent => None,
        }
    }
}

/// Whether a rule may deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Enforcement {
    /// It denies.
    #[default]
    Enforce,
    /// It counts and reports, but never denies.
    Shadow,
    /// A soft limit: it counts as an enforced rule does, and never denies; requests over it are marked for the upstream.
    Annotate,
    /// One of several alternatives: a request is denied only if every such rule that applies to it is over its limit.
    Quota,
}

impl Enforcement {
    /// Every mode.
    pub const ALL: [Enforcement; 4] =
        [Enforcement::Enforce, Enforcement::Shadow, Enforcement::Annotate, Enforcement::Quota];

    /// The name in the rules file.
    pub const fn name(self) -> &'static str {
        match self {
            Enforcement::Enforce => "enforce",
            Enforcement::Shadow => "shadow",
            Enforcement::Annotate => "annotate",
            Enforcement::Quota => "quota",
        }
    }

    /// Whether a rule of this mode can deny, by itself or together with others.
    pub const fn may_deny(self) -> bool {
        matches!(self, Enforcement::Enforce | Enforcement::Quota)
    }
}

/// What a rule answers while the store is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
// Exhaustive on purpose: code that answers without a store must handle each of them.
pub enum FailurePolicy {
    /// Decide in this process.
    #[default]
    Local,
    /// Fail open: every request passes.
    Open,
    /// Fail closed: no request passes.
    Closed,
}
