//! A validated rule: who is limited, by what key, and how.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::algorithm::Lease;
use crate::calendar::{Calendar, CalendarError, CalendarUnit};
use crate::condition::Condition;
use crate::denial::Denial;
use crate::key::{Key, KeyTemplate};
use crate::limit::{Limit, LimitError, parse_count, parse_span};
use crate::quota::{Algorithm, Quota};
use crate::request::Request;
use crate::rule_spec::{CostSpec, Enforcement, EstimatedCost, FailurePolicy, OneOrMany, RuleSpec, Scalar};
use crate::time::Span;

/// What a request costs under a rule, on top of the request's own cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cost {
    /// The same for every request.
    Fixed(u32),
    /// Carried by an attribute of the request.
    Carried {
        /// The attribute's name.
        attribute: String,
        /// What a request without it costs.
        otherwise: u32,
    },
    /// The first whose conditions all hold; 1 when none does.
    Cases(Vec<(Vec<Condition>, Cost)>),
}

/// How many tokens an instance takes from a shared store at a time.
// Exhaustive on purpose: the store must know how to size each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSize {
    /// As many as it needs for a few milliseconds.
    Auto,
    /// At most this many.
    Tokens(u32),
}

impl Cost {
    /// The cost of a request. The error holds the attribute that should carry it, and its value.
    fn of(&self, request: &impl Request) -> Result<u32, (&str, String)> {
        match self {
            Cost::Fixed(cost) => Ok(*cost),
            Cost::Carried { attribute, otherwise } => match request.attribute(attribute) {
                None => Ok(*otherwise),
                Some(value) => parse_cost(&value).ok_or_else(|| (attribute.as_str(), value.into_owned())),
            },
            Cost::Cases(_) => self.case(request).map_or(Ok(1), |cost| cost.of(request)),
        }
    }

    /// The attribute that carries the cost of this request, even if it is not known yet.
    pub fn carrier(&self, request: &impl Request) -> Option<&str> {
        match self {
            Cost::Fixed(_) => None,
            Cost::Carried { attribute, .. } => Some(attribute),
            Cost::Cases(_) => self.case(request)?.carrier(request),
        }
    }

    /// The first case that matches.
    fn case(&self, request: &impl Request) -> Option<&Cost> {
        let Cost::Cases(cases) = self else { return None };
        let holds = |(when, _): &&(Vec<Condition>, Cost)| when.iter().all(|condition| condition.holds(request));
        cases.iter().find(holds).map(|(_, cost)| cost)
    }

    /// Whether some requests carry their own cost.
    pub fn is_carried(&self) -> bool {
        !self.attributes().is_empty()
    }

    /// The attributes that may carry the cost.
    pub fn attributes(&self) -> Vec<&str> {
        match self {
            Cost::Fixed(_) => Vec::new(),
            Cost::Carried { attribute, .. } => vec![attribute],
            Cost::Cases(cases) => cases.iter().flat_map(|(_, cost)| cost.attributes()).collect(),
        }
    }
}

/// A rule in which everything is valid. [`Rule::new`] starts one, [`RuleSpec::build`] validates it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    name: Arc<str>,
    when: Vec<Condition>,
    key: KeyTemplate,
    pub(crate) quota: Quota,
    cost: Cost,
    lease: Option<LeaseSize>,
    deny: Option<Denial>,
    /// Whether a condition names segments of a path, which the key may use.
    names_segments: bool,
    spec: RuleSpec,
}

/// What is wrong with a rule, and in which field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RuleError {
    /// The field of the rules file, such as `limit` or `when.path`.
    pub field: String,
    /// What is wrong with it and what to do.
    pub problem: String,
}

/// Every faulty field of a rule. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleErrors(Vec<RuleError>);

impl RuleErrors {
    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, RuleError> {
        self.0.iter()
    }
}

impl IntoIterator for RuleErrors {
    type Item = RuleError;
    type IntoIter = std::vec::IntoIter<RuleError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// One line for each.
impl fmt::Display for RuleErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for RuleErrors {}

impl RuleError {
    fn new(field: impl Into<String>, problem: impl ToString) -> Self {
        RuleError { field: field.into(), problem: problem.to_string() }
    }
}

impl Rule {
    /// How long a slot is kept when the rule does not say.
    pub const DEFAULT_HOLD: Span = Span::from_secs(60);
    const MAX_NAME: usize = 100;

    /// Starts a rule of this name, to be completed and built.
    ///
    /// ```
    /// use tollkeeper_core::Rule;
    /// let rule = Rule::new("per-user").key("{user_id}").limit("10/s").burst(50).build()?;
    /// assert_eq!(rule.quota().limit(), 50);
    /// # Ok::<(), tollkeeper_core::RuleErrors>(())
    /// ```
    #[expect(clippy::new_ret_no_self, reason = "a rule exists only valid, so it begins as a spec")]
    pub fn new(name: impl Into<String>) -> RuleSpec {
        RuleSpec { name: name.into(), ..RuleSpec::default() }
    }

    /// Unique among the rules.
    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, shared, to be kept for longer than the rule.
    #[inline]
    pub fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// A label such as user, endpoint, ip, tenant or global.
    #[inline]
    pub fn scope(&self) -> Option<&str> {
        self.spec.scope.as_deref()
    }

    /// All of these must hold.
    #[inline]
    pub fn when(&self) -> &[Condition] {
        &self.when
    }

    /// Which bucket.
    #[inline]
    pub fn key(&self) -> &KeyTemplate {
        &self.key
    }

    /// How much. A charge may have another: see [`Charge::quota`](crate::Charge::quota).
    #[inline]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// What each request costs.
    #[inline]
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Whether tokens are taken from a shared store ahead of use.
    #[inline]
    pub fn lease(&self) -> Option<LeaseSize> {
        self.lease
    }

    /// Whether it may deny.
    #[inline]
    pub fn mode(&self) -> Enforcement {
        self.spec.mode
    }

    /// Whether it only counts and reports.
    #[inline]
    pub fn is_shadow(&self) -> bool {
        self.spec.mode == Enforcement::Shadow
    }

    /// Whether requests over the limit pass, marked for the upstream.
    #[inline]
    pub fn annotates(&self) -> bool {
        self.spec.mode == Enforcement::Annotate
    }

    /// Whether limit headers show it: enforced rules, unless they say otherwise.
    #[inline]
    pub fn is_in_headers(&self) -> bool {
        self.is_enforced() && self.spec.headers
    }

    /// What to answer while the store is unreachable.
    #[inline]
    pub fn on_store_failure(&self) -> FailurePolicy {
        self.spec.on_store_failure
    }

    /// The response to denied HTTP requests, if it is not the problem document.
    #[inline]
    pub fn deny(&self) -> Option<&Denial> {
        self.deny.as_ref()
    }

    /// Whether it is switched on.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.spec.active
    }

    /// As written, for showing and saving.
    #[inline]
    pub fn spec(&self) -> &RuleSpec {
        &self.spec
    }

    fn understand(spec: RuleSpec) -> Result<Rule, RuleErrors> {
        let mut errors = Vec::new();
        let mut note = |error: RuleError| errors.push(error);
        check_name(&spec.name).unwrap_or_else(&mut note);
        let when: Vec<Condition> = spec
            .when
            .iter()
            .filter_map(|(attribute, value)| condition("when", attribute, value).map_err(&mut note).ok())
            .collect();
        let key = KeyTemplate::new(&spec.key).map_err(|error| note(RuleError::new("key", error)));
        let quota = quota(&spec).map_err(|errors| errors.into_iter().for_each(&mut note));
        let cost = costs(&spec.cost).map_err(|errors| errors.into_iter().for_each(&mut note));
        let lease = spec.lease.as_ref().map(|size| lease(size, spec.algorithm)).transpose().map_err(&mut note);
        let deny = spec.deny.as_ref().map(Denial::new).transpose();
        let deny = deny.map_err(|(field, problem)| note(RuleError::new(format!("deny.{field}"), problem)));
        let (Ok(key), Ok(quota), Ok(cost), Ok(lease), Ok(deny), true) =
            (key, quota, cost, lease, deny, errors.is_empty())
        else {
            return Err(RuleErrors(errors));
        };
        let names_segments = when.iter().any(|condition| condition.names().next().is_some());
        Ok(Rule { name: spec.name.as_str().into(), when, key, quota, cost, lease, deny, names_segments, spec })
    }

    /// Whether the rule denies by itself.
    #[inline]
    pub fn is_enforced(&self) -> bool {
        self.spec.mode == Enforcement::Enforce
    }

    /// Whether the rule can deny, by itself or together with others.
    #[inline]
    pub fn may_deny(&self) -> bool {
        self.spec.mode.may_deny()
    }

    /// Whether it denies together with the others of its kind: only if all of them do.
    #[inline]
    pub fn is_quota(&self) -> bool {
        self.spec.mode == Enforcement::Quota
    }

    /// Whether every condition holds.
    pub fn matches(&self, request: &impl Request) -> bool {
        self.when.iter().all(|condition| condition.holds(request))
    }

    /// The bucket of a request, or the attributes of which it has none. Named segments of a path count as attributes.
    pub fn key_of(&self, request: &impl Request) -> Result<Key, &[String]> {
        let mut key = Key::default();
        self.key_into(request, &mut key)?;
        Ok(key)
    }

    pub(crate) fn key_into(&self, request: &impl Request, key: &mut Key) -> Result<(), &[String]> {
        if !self.names_segments {
            return self.key.render_into(request, key);
        }
        self.with_segments(request, |request| self.key.render_into(request, key))
    }

    /// With the named segments of the path as attributes.
    fn with_segments<T, R: Request>(&self, request: &R, then: impl FnOnce(&Captured<'_, R>) -> T) -> T {
        let values: Vec<_> = self.when.iter().map(|condition| request.attribute(condition.attribute())).collect();
        let named = self.when.iter().zip(&values).filter_map(|(one, value)| Some(one.captures(value.as_deref()?)));
        then(&Captured { request, named: named.flatten().collect() })
    }

    /// The attributes that must be present: one of each inner list.
    pub fn needs(&self) -> impl Iterator<Item = Vec<String>> {
        let conditions = self.when.iter().filter(|condition| !condition.may_lack());
        let conditions = conditions.map(|condition| vec![condition.attribute().to_string()]);
        let is_named = |name: &String| self.when.iter().any(|condition| condition.names().any(|named| named == name));
        let keys = self.key.needs().filter(move |names| !names.iter().any(is_named));
        conditions.chain(keys.map(<[String]>::to_vec))
    }

    /// The request's cost times the rule's. A product too large to count saturates, and can never pass.
    pub fn cost_of(&self, request: &impl Request) -> Result<u32, CostError> {
        let own = self.own_cost(request).map_err(|(attribute, value)| CostError {
            rule: self.name.clone(),
            attribute: attribute.to_string(),
            value,
        })?;
        Ok(own.saturating_mul(request.cost()))
    }

    fn own_cost(&self, request: &impl Request) -> Result<u32, (&str, String)> {
        if self.names_segments && self.cost.is_carried() {
            return self.with_segments(request, |request| self.cost.of(request));
        }
        self.cost.of(request)
    }

    /// What the rule charges per unit of the request's cost; 1 if that cannot be read.
    pub fn units_of(&self, request: &impl Request) -> u32 {
        self.own_cost(request).unwrap_or(1)
    }
}

impl RuleSpec {
    /// Validates the rule, or names every field that is wrong.
    pub fn build(self) -> Result<Rule, RuleErrors> {
        Rule::understand(self)
    }

    /// The same for a rule of the program's own: its name is in parentheses, which a user's rule cannot have.
    pub fn build_internal(self) -> Result<Rule, RuleErrors> {
        let rule = self.build()?;
        Ok(Rule { name: format!("({})", rule.name).into(), ..rule })
    }
}

impl TryFrom<RuleSpec> for Rule {
    type Error = RuleErrors;

    fn try_from(spec: RuleSpec) -> Result<Rule, RuleErrors> {
        spec.build()
    }
}

impl From<Rule> for RuleSpec {
    fn from(rule: Rule) -> RuleSpec {
        rule.spec
    }
}

/// A request with the named segments of its path. They come first: a client must not be able to replace them.
struct Captured<'r, R> {
    request: &'r R,
    named: Vec<(&'r str, &'r str)>,
}

impl<R: Request> Request for Captured<'_, R> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let named = self.named.iter().find(|(named, _)| *named == name);
        named.map(|(_, value)| Cow::Borrowed(*value)).or_else(|| self.request.attribute(name))
    }

    fn keeps_empty(&self) -> bool {
        self.request.keeps_empty()
    }
}

/// An attribute that should hold a cost is not a number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute `{attribute}` is the cost of rule `{rule}` and must be a whole number, not {value:?}")]
pub struct CostError {
    /// The rule that needs it.
    pub rule: Arc<str>,
    /// The attribute's name.
    pub attribute: String,
    /// Its value.
    pub value: String,
}

/// A whole number, however large: one too large to count saturates, and can never pass.
pub fn parse_cost(text: &str) -> Option<u32> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

/// Names go into header fields, metrics and keys, so they keep to characters that need no escaping anywhere.
fn check_name(name: &str) -> Result<(), RuleError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@');
    if name.is_empty() {
        return Err(RuleError::new("name", "is empty; give the rule a name such as free-user"));
    }
    if name.len() > Rule::MAX_NAME {
        return Err(RuleError::new(
            "name",
            format!("{} characters are too many (at most {})", name.len(), Rule::MAX_NAME),
        ));
    }
    match name.chars().find(|c| !fine(*c)) {
        Some(bad) => Err(RuleError::new(
            "name",
            format!(
                "{name:?} contains {bad:?}; use letters, digits and - _ . : / @ (names appear in headers and metrics)"
            ),
        )),
        None => Ok(()),
    }
}

fn condition(within: &str, attribute: &str, value: &OneOrMany) -> Result<Condition, RuleError> {
    Condition::new(attribute, value).map_err(|problem| RuleError::new(format!("{within}.{attribute}"), problem))
}

fn quota(spec: &RuleSpec) -> Result<Quota, Vec<RuleError>> {
    let mut errors = Vec::new();
    let mut keep = |field: &str, error: LimitError| errors.push(RuleError::new(field, error));
    let text = spec.limit.to_text();
    let limit = text.parse::<Limit>().map_err(|error| keep("limit", error)).ok();
    let burst = spec.burst.as_ref().map(|burst| parse_count(&burst.to_text()));
    let burst = burst.transpose().unwrap_or_else(|error| {
        keep("burst", error);
        None
    });
    let hold = spec.hold.as_deref().map(parse_span).transpose().unwrap_or_else(|error| {
        keep("hold", error);
        None
    });
    let period = match (spec.algorithm, limit.and_then(|limit| limit.period)) {
        (Algorithm::Concurrency, period) => hold.or(period).unwrap_or(Rule::DEFAULT_HOLD),
        (_, Some(period)) => period,
        (_, None) if limit.is_some() => {
            let problem = format!("{text:?} has no unit of time; write for example {text}/s or {text}/min");
            errors.push(RuleError::new("limit", problem));
            Span::SECOND
        }
        (_, None) => Span::SECOND,
    };
    let Some(limit) = limit.filter(|_| errors.is_empty()) else { return Err(errors) };
    let mut builder = match calendar(spec, &limit)? {
        Some(calendar) => Quota::per_calendar(limit.count, calendar).algorithm(spec.algorithm),
        None => Quota::per(limit.count, period).algorithm(spec.algorithm),
    };
    builder = builder.burst(burst.unwrap_or(limit.burst));
    builder.build().map_err(|error| vec![RuleError::new(error.field(), error)])
}

/// The calendar of a rule's windows, if its limit is for a part of one. A day in UTC, and for other algorithms than
/// `fixed_window` a week too, is as long as any other.
fn calendar(spec: &RuleSpec, limit: &Limit) -> Result<Option<Calendar>, Vec<RuleError>> {
    let has_any = spec.timezone.is_some() || spec.anchor_day.is_some();
    let unit = limit.calendar.filter(|unit| match unit {
        CalendarUnit::Day => has_any && spec.algorithm == Algorithm::FixedWindow,
        CalendarUnit::Week => spec.algorithm == Algorithm::FixedWindow,
        CalendarUnit::Month | CalendarUnit::Year => true,
    });
    let Some(unit) = unit else {
        let fields = [("timezone", spec.timezone.is_some()), ("anchor_day", spec.anchor_day.is_some())];
        let problem = "is for algorithm: fixed_window with a limit per day, week, month or year; remove it";
        let given = fields.into_iter().filter(|(_, is_given)| *is_given);
        let errors: Vec<RuleError> = given.map(|(field, _)| RuleError::new(field, problem)).collect();
        return if errors.is_empty() { Ok(None) } else { Err(errors) };
    };
    let (mut calendar, mut errors) = (Calendar::new(unit), Vec::new());
    let mut wrong = |error: CalendarError| errors.push(RuleError::new(error.field, error));
    if let Some(name) = &spec.timezone {
        calendar = calendar.timezone(name).map_err(&mut wrong).unwrap_or(calendar);
    }
    if let Some(day) = spec.anchor_day {
        calendar = calendar.anchor_day(day).map_err(&mut wrong).unwrap_or(calendar);
    }
    if errors.is_empty() { Ok(Some(calendar).filter(|calendar| !calendar.is_utc_day())) } else { Err(errors) }
}

fn lease(size: &Scalar, algorithm: Algorithm) -> Result<LeaseSize, RuleError> {
    if !Lease::is_possible(algorithm) {
        let problem = format!(
            "{algorithm} must see each request, so it cannot use leases; remove it, or use \
                               token_bucket or a window"
        );
        return Err(RuleError::new("lease", problem));
    }
    match size.to_text().trim() {
        "auto" => Ok(LeaseSize::Auto),
        text => match parse_count(text) {
            Ok(tokens) if tokens > 0 => Ok(LeaseSize::Tokens(tokens)),
            _ => Err(RuleError::new("lease", format!("{text:?} is not a size; write auto, or a number of tokens"))),
        },
    }
}

fn costs(spec: &CostSpec) -> Result<Cost, Vec<RuleError>> {
    let cases = match spec {
        CostSpec::One(one) => return cost(one).map_err(|error| vec![error]),
        CostSpec::Estimated(EstimatedCost { from, estimate }) => {
            if from.trim().is_empty() {
                let problem = "is empty; name the attribute that carries the cost, such as response.x-tokens-used";
                return Err(vec![RuleError::new("cost.from", problem)]);
            }
            return Ok(Cost::Carried { attribute: from.clone(), otherwise: *estimate });
        }
        CostSpec::Cases(cases) => cases,
    };
    let (mut understood, mut errors) = (Vec::with_capacity(cases.len()), Vec::new());
    if cases.is_empty() {
        errors.push(RuleError::new("cost", "an empty list has no effect; write a number, or a case"));
    }
    for (index, case) in cases.iter().enumerate() {
        let field = format!("cost[{index}].when");
        let mut note = |error: RuleError| errors.push(error);
        let conditions = case.when.iter().map(|(attribute, value)| condition(&field, attribute, value));
        let conditions: Vec<Condition> = conditions.filter_map(|one| one.map_err(&mut note).ok()).collect();
        match cost(&case.cost) {
            Ok(cost) => understood.push((conditions, cost)),
            Err(error) => note(RuleError { field: format!("cost[{index}].cost"), ..error }),
        }
        if case.when.is_empty() && index + 1 < cases.len() {
            let problem = "has no `when` and matches everything, so the cases after it never apply; put it last";
            errors.push(RuleError::new(format!("cost[{index}]"), problem));
        }
    }
    if errors.is_empty() { Ok(Cost::Cases(understood)) } else { Err(errors) }
}

fn cost(cost: &Scalar) -> Result<Cost, RuleError> {
    match cost {
        Scalar::Number(number) => match u32::try_from(*number) {
            Ok(cost) if cost <= Quota::MAX_COUNT => Ok(Cost::Fixed(cost)),
            _ => Err(RuleError::new("cost", format!("{number} is too large (at most {})", Quota::MAX_COUNT))),
        },
        Scalar::Text(text) if text.trim().is_empty() => {
            Err(RuleError::new("cost", "is empty; write a number, or the name of the attribute that carries it"))
        }
        Scalar::Text(text) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            Err(RuleError::new("cost", format!("{text:?} is neither a whole number nor the name of an attribute")))
        }
        Scalar::Text(attribute) => Ok(Cost::Carried { attribute: attribute.clone(), otherwise: 1 }),
    }
}
