//! A verdict as an HTTP response: limit headers, `Retry-After`, and a problem document (RFC 9457).
//!
//! A problem names rules, never keys: a key may contain a secret, which must not be shown to the client or to anyone
//! in between.

mod denial;

#[cfg(any(feature = "tower", test))]
pub(crate) use denial::denial_detail;

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
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
        self.each_header(verdict, now, |name, value| {
            // Values are digits and names of rules, which need no escaping: none is refused.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(header_name(name), value);
            }
        });
    }

    /// Names and values of the same headers, for hosts that write bytes: each value is put into one text after the other.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule, Timestamp, http::AnswerStyle};
    ///
    /// let policy = Policy::new([Rule::new("all").key("global").limit("3/h")])?;
    /// let verdict = Limiter::new(policy, MemoryStore::new()).try_check(&Descriptor::default())?;
    /// let mut lines = String::new();
    /// AnswerStyle::default().each_header(&verdict, Timestamp::default(), |name, value| {
    ///     lines.extend([name, ": ", value, "\r\n"]);
    /// });
    /// assert_eq!(lines, "ratelimit-policy: \"all\";q=3;w=3600\r\nratelimit: \"all\";r=2;t=1200\r\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn each_header(&self, verdict: &Verdict, now: Timestamp, mut each: impl FnMut(&'static str, &str)) {
        // For nearly all rules: growing it costs more than writing to it.
        let mut text = String::with_capacity(48 * verdict.rows().len());
        for header in each_limit_header(self.headers, verdict, now) {
            text.clear();
            // Writing to a string cannot fail.
            if header.write(&mut text).is_ok() {
                each(header.name, &text);
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
        let (status, content_type, body) = self.own_answer(verdict);
        let content_type = match content_type {
            Cow::Borrowed(text) => HeaderValue::from_static(text),
            // Checked with its rule: none is refused here.
            Cow::Owned(text) => HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(Problem::CONTENT_TYPE)),
        };
        // Room for all of them: growing it would cost more than the rest.
        let mut headers = HeaderMap::with_capacity(6);
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        self.set_headers(&mut headers, verdict, now);
        headers.extend(retry_after(verdict).map(|seconds| (RETRY_AFTER, seconds)));
        Answer { status, headers, body: body.into_bytes() }
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
        let (status, content_type, body) = self.own_answer(verdict);
        let mut headers = vec![("content-type", content_type), ("cache-control", "no-store".into())];
        let limits = limit_headers(self.headers, verdict, now).into_iter();
        headers.extend(limits.map(|(name, value)| (name, Cow::Owned(value))));
        headers.extend(retry_after_seconds(verdict).map(|wait| ("retry-after", Cow::Owned(wait.to_string()))));
        PlainAnswer { status, headers, body }
    }

    /// The same written header by header, for hosts that write bytes; returns status and body.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule, Timestamp, http::AnswerStyle};
    ///
    /// let policy = Policy::new([Rule::new("all").key("global").limit("1/min")])?;
    /// let limiter = Limiter::new(policy, MemoryStore::new());
    /// limiter.try_check(&Descriptor::default())?;
    /// let verdict = limiter.try_check(&Descriptor::default())?;
    /// let mut lines = String::new();
    /// let (status, _) = AnswerStyle::default().deny_in_pieces(&verdict, Timestamp::default(), |name, value| {
    ///     lines.extend([name, ": ", value, "\r\n"]);
    /// });
    /// assert_eq!(status, 429);
    /// assert!(lines.ends_with("retry-after: 60\r\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deny_in_pieces(
        &self,
        verdict: &Verdict,
        now: Timestamp,
        mut header: impl FnMut(&'static str, &str),
    ) -> (StatusCode, String) {
        let (status, content_type, body) = self.own_answer(verdict);
        header("content-type", &content_type);
        header("cache-control", "no-store");
        self.each_header(verdict, now, &mut header);
        if let Some(wait) = retry_after_seconds(verdict) {
            header("retry-after", &wait.to_string());
        }
        (status, body)
    }

    /// Status, content type and body of a denial.
    fn own_answer(&self, verdict: &Verdict) -> (StatusCode, Cow<'static, str>, String) {
        let (status, kind, title) = if verdict.is_unavailable() {
            (StatusCode::SERVICE_UNAVAILABLE, REDUCED_CAPACITY, "Temporary reduced capacity")
        } else {
            (self.own_status(verdict).unwrap_or(self.deny_status), QUOTA_EXCEEDED, "Quota exceeded")
        };
        // An unreachable store is not the client's fault, and keeps our own response.
        let own = verdict.limiting().filter(|_| !verdict.is_unavailable());
        let (content_type, body) = own
            .and_then(|row| self.own_words(verdict, row))
            .unwrap_or_else(|| (Problem::CONTENT_TYPE.into(), denial::document(kind, title, status, verdict)));
        (status, content_type, body)
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

/// The name of a limit header. The usual ones are there already: to make one from a text takes longer than to insert it.
fn header_name(name: &'static str) -> HeaderName {
    static USUAL: [HeaderName; 2] = [HeaderName::from_static("ratelimit-policy"), HeaderName::from_static("ratelimit")];
    USUAL.iter().find(|usual| **usual == name).cloned().unwrap_or_else(|| HeaderName::from_static(name))
}

/// Whole seconds; absent when waiting does not help.
pub(crate) fn retry_after(verdict: &Verdict) -> Option<HeaderValue> {
    retry_after_seconds(verdict).map(HeaderValue::from)
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

#[cfg(test)]
mod tests;
