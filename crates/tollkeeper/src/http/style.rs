//! A verdict as an HTTP response: limit headers, `Retry-After`, and a problem document (RFC 9457).
//!
//! A problem names rules, never keys: a key may contain a secret, which must not be shown to the client or to anyone
//! in between.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tollkeeper_core::{
    CostError, Denial, HeaderStyle, Row, Rule, Span, Timestamp, Verdict, each_limit_header, limit_headers,
    retry_after_seconds,
};

use super::answer::{Answer, PlainAnswer};
use super::problem::Problem;
use super::source::AttributeSource;
use crate::store::Overloaded;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

impl Problem {
    /// 503 for a request that was shed, saying when to try again.
    pub fn overloaded(overloaded: &Overloaded) -> Problem {
        let seconds = Span::from(overloaded.retry_after).as_secs_ceil();
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, overloaded.to_string())
            .of_type(REDUCED_CAPACITY, "Temporary reduced capacity")
            .header(RETRY_AFTER, seconds.into())
    }
}

impl Answer {
    /// Refuses a request whose cost is not a number: 400, naming the attribute.
    ///
    /// ```
    /// use tollkeeper::{CostError, http::Answer};
    ///
    /// let error = CostError { rule: "uploads".into(), attribute: "header.x-parts".into(), value: "many".into() };
    /// assert_eq!(Answer::bad_cost(&error).status, 400);
    /// ```
    pub fn bad_cost(error: &CostError) -> Answer {
        Problem::new(StatusCode::BAD_REQUEST, bad_cost_detail(error)).into()
    }

    /// Sheds a request: 503, saying when to try again.
    ///
    /// ```
    /// # use tollkeeper::{CheckError, http::Answer};
    /// fn answer(error: &CheckError) -> Answer {
    ///     match error {
    ///         CheckError::Cost(error) => Answer::bad_cost(error),
    ///         CheckError::Overloaded(overloaded) => Answer::overloaded(overloaded),
    ///         other => panic!("{other}"),
    ///     }
    /// }
    /// ```
    pub fn overloaded(overloaded: &Overloaded) -> Answer {
        Problem::overloaded(overloaded).into()
    }

    /// Refuses a request with two identities, as found by
    /// [`Identity::contradiction`](super::Identity::contradiction): 400, naming the place.
    ///
    /// ```
    /// use tollkeeper::http::Answer;
    ///
    /// assert_eq!(Answer::contradiction(&"header.x-api-key".parse()?).status, 400);
    /// # Ok::<(), tollkeeper::http::AttributeSourceError>(())
    /// ```
    pub fn contradiction(place: &AttributeSource) -> Answer {
        Problem::new(StatusCode::BAD_REQUEST, contradiction_detail(place)).field(place.to_string()).into()
    }
}

/// How responses are written.
///
/// ```
/// use tollkeeper::{HeaderStyle, http::AnswerStyle};
///
/// let style = AnswerStyle { deny_status: http::StatusCode::FORBIDDEN, ..AnswerStyle::default() };
/// assert_eq!(style.headers, HeaderStyle::Draft11);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerStyle {
    /// Which convention the limit headers follow.
    pub headers: HeaderStyle,
    /// The status of a denial; 429 by default. While the store is unreachable it is 503.
    pub deny_status: StatusCode,
    /// The answer for rules without their own, instead of the problem document.
    pub deny: Option<Arc<Denial>>,
}

impl Default for AnswerStyle {
    fn default() -> Self {
        AnswerStyle { headers: HeaderStyle::default(), deny_status: StatusCode::TOO_MANY_REQUESTS, deny: None }
    }
}

impl AnswerStyle {
    /// The limit headers that belong on any response, allowed or denied. `now` is the store's time.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, RuleSpec, Timestamp, http::AnswerStyle};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let rule = RuleSpec { name: "all".into(), key: "global".into(), limit: "3/h".into(), ..RuleSpec::default() };
    /// let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
    /// let verdict = limiter.check(&Descriptor::default()).await?;
    /// let headers = AnswerStyle::default().headers_for(&verdict, Timestamp::default());
    /// assert_eq!(headers["ratelimit"], "\"all\";r=2;t=1200");
    /// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
    /// ```
    pub fn headers_for(&self, verdict: &Verdict, now: Timestamp) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.set_headers(&mut headers, verdict, now);
        headers
    }

    /// Sets the same headers on a response, in place of any of the same names.
    pub fn set_headers(&self, headers: &mut HeaderMap, verdict: &Verdict, now: Timestamp) {
        // For nearly all rules: growing it costs more than writing to it.
        let mut text = String::with_capacity(48 * verdict.rows().len());
        for header in each_limit_header(self.headers, verdict, now) {
            text.clear();
            // Writing to a string cannot fail. Values are digits and names of rules, which need no escaping: none is refused.
            if header.write(&mut text).is_ok()
                && let Ok(value) = HeaderValue::from_str(&text)
            {
                headers.insert(HeaderName::from_static(header.name), value);
            }
        }
    }

    /// What belongs on a response with this verdict: the limit headers and, on a denial that ends, `Retry-After`.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule, Timestamp, http::AnswerStyle};
    ///
    /// let policy = Policy::new([Rule::new("all").key("global").limit("1/min")])?;
    /// let limiter = Limiter::new(policy, MemoryStore::new());
    /// limiter.try_check(&Descriptor::default())?;
    /// let verdict = limiter.try_check(&Descriptor::default())?;
    /// let headers = AnswerStyle::default().response_headers(&verdict, Timestamp::default());
    /// assert_eq!(headers["ratelimit"], "\"all\";r=0;t=60");
    /// assert_eq!(headers["retry-after"], "60");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn response_headers(&self, verdict: &Verdict, now: Timestamp) -> HeaderMap {
        let mut headers = self.headers_for(verdict, now);
        headers.extend(retry_after(verdict).map(|seconds| (RETRY_AFTER, seconds)));
        headers
    }

    /// The answer to a denied request: when to come back, which rules were in the way, and never a key.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, RuleSpec, Timestamp, http::AnswerStyle};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let rule = RuleSpec { name: "all".into(), key: "global".into(), limit: "1/min".into(), ..RuleSpec::default() };
    /// let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
    /// limiter.check(&Descriptor::default()).await?;
    /// let verdict = limiter.check(&Descriptor::default()).await?;
    ///
    /// let answer = AnswerStyle::default().deny(&verdict, Timestamp::default());
    /// assert_eq!(answer.status, 429);
    /// assert_eq!(answer.headers["retry-after"], "60");
    /// assert_eq!(answer.headers["ratelimit-policy"], "\"all\";q=1;w=60");
    /// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
    /// ```
    pub fn deny(&self, verdict: &Verdict, now: Timestamp) -> Answer {
        let PlainAnswer { status, headers, body } = self.deny_plainly(verdict, now);
        // Values are digits, names of rules and a content type that was checked with its rule: none is refused here.
        let headers = headers.into_iter().filter_map(|(name, value)| {
            let value = match value {
                Cow::Borrowed(text) => HeaderValue::from_static(text),
                Cow::Owned(text) => HeaderValue::try_from(text).ok()?,
            };
            Some((HeaderName::from_static(name), value))
        });
        Answer { status, headers: headers.collect(), body: body.into_bytes() }
    }

    /// The same as plain texts, for hosts that have their own type for headers: making a header map costs more than a decision.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule, Timestamp, http::AnswerStyle};
    ///
    /// let policy = Policy::new([Rule::new("all").key("global").limit("1/min")])?;
    /// let limiter = Limiter::new(policy, MemoryStore::new());
    /// limiter.try_check(&Descriptor::default())?;
    /// let verdict = limiter.try_check(&Descriptor::default())?;
    /// let answer = AnswerStyle::default().deny_plainly(&verdict, Timestamp::default());
    /// assert!(answer.headers.contains(&("retry-after", "60".into())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deny_plainly(&self, verdict: &Verdict, now: Timestamp) -> PlainAnswer {
        let (status, kind, title) = if verdict.is_unavailable() {
            (StatusCode::SERVICE_UNAVAILABLE, REDUCED_CAPACITY, "Temporary reduced capacity")
        } else {
            (self.own_status(verdict).unwrap_or(self.deny_status), QUOTA_EXCEEDED, "Quota exceeded")
        };
        let problem = || {
            Problem::new(status, denial_detail(verdict))
                .of_type(kind, title)
                .member("violated-policies", &violated(verdict))
                .member("retry_after_ms", &verdict.retry_after().map(Span::as_millis_ceil))
        };
        // An unreachable store is not the client's fault, and keeps our own response.
        let own = verdict.limiting().filter(|_| !verdict.is_unavailable());
        let (content_type, body) = own
            .and_then(|row| self.own_words(verdict, row))
            .unwrap_or_else(|| (Problem::CONTENT_TYPE.into(), problem().document()));
        let mut headers = vec![("content-type", content_type), ("cache-control", "no-store".into())];
        let limits = limit_headers(self.headers, verdict, now).into_iter();
        headers.extend(limits.map(|(name, value)| (name, Cow::Owned(value))));
        headers.extend(retry_after_seconds(verdict).map(|wait| ("retry-after", Cow::Owned(wait.to_string()))));
        PlainAnswer { status, headers, body }
    }

    /// What a rule answers in its own words, or all rules do.
    pub fn denial_of<'s>(&'s self, rule: &'s Rule) -> Option<&'s Denial> {
        rule.deny().or(self.deny.as_deref())
    }

    /// The status that the limiting rule sets.
    fn own_status(&self, verdict: &Verdict) -> Option<StatusCode> {
        StatusCode::from_u16(self.denial_of(&verdict.limiting()?.charge.rule)?.status()?).ok()
    }

    /// The body that the rule sets, and its type.
    fn own_words(&self, verdict: &Verdict, row: &Row) -> Option<(Cow<'static, str>, String)> {
        let (content_type, template) = self.denial_of(&row.charge.rule)?.body()?;
        Some((content_type.to_string().into(), template.fill(verdict, row)))
    }
}

/// Whole seconds; absent when waiting does not help.
pub(crate) fn retry_after(verdict: &Verdict) -> Option<HeaderValue> {
    retry_after_seconds(verdict).map(HeaderValue::from)
}

/// The rules that deny, in file order: enforced ones, or all quotas together.
fn violated(verdict: &Verdict) -> Vec<&str> {
    let by_quotas = verdict.limiting().is_some_and(|row| row.charge.rule.is_quota());
    let may_deny = |row: &Row| row.charge.rule.is_enforced() || (by_quotas && row.charge.rule.is_quota());
    let rows = verdict.rows().iter();
    rows.filter(|row| may_deny(row) && !row.decision.is_allowed()).map(|row| row.charge.rule.name()).collect()
}

/// Which rule, and when to retry, for people.
pub(crate) fn denial_detail(verdict: &Verdict) -> String {
    let Some(row) = verdict.limiting() else {
        return "The request is within its limits.".into();
    };
    let name = row.charge.rule.name();
    let is_blocked = row.is_blocked();
    match verdict.retry_after() {
        Some(wait) if is_blocked => format!("Rule `{name}` blocks this key; retry in {}.", in_words(wait)),
        None if is_blocked => format!("Rule `{name}` blocks this key until further notice."),
        Some(wait) if verdict.is_unavailable() => {
            format!("Rule `{name}` cannot be checked right now and fails closed; retry in {}.", in_words(wait))
        }
        Some(wait) => format!("The limit of rule `{name}` is reached; retry in {}.", in_words(wait)),
        None => format!(
            "The request costs {} and rule `{name}` never allows more than {}: the cost exceeds the limit, so waiting \
             does not help.",
            row.charge.cost, row.decision.limit
        ),
    }
}

/// What is wrong, without the values: they may be secrets.
pub(crate) fn contradiction_detail(place: &AttributeSource) -> String {
    format!(
        "`{place}` identifies the client, but occurs several times with different values, or in a form that servers \
         read differently; send it once."
    )
}

/// Which attribute should have been a number. Its value is not repeated: it may not be meant for every reader.
pub(crate) fn bad_cost_detail(error: &CostError) -> String {
    format!("Attribute `{}` is the cost of rule `{}` and must be a whole number.", error.attribute, error.rule)
}

/// Rounded up: a client that retries early is denied again.
fn in_words(wait: Span) -> String {
    match (wait.as_millis_ceil(), wait.as_secs_ceil()) {
        (1, _) => "1 millisecond".into(),
        (ms @ 0..1_000, _) => format!("{ms} milliseconds"),
        (_, seconds @ 1..120) => counted(seconds, "second"),
        (_, seconds @ 120..7_200) => counted(seconds.div_ceil(60), "minute"),
        (_, seconds @ 7_200..172_800) => counted(seconds.div_ceil(3_600), "hour"),
        (_, seconds) => counted(seconds.div_ceil(86_400), "day"),
    }
}

fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
