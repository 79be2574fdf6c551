//! Problem documents (RFC 9457): the only place that writes refusals and failures for HTTP.

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::Value;

use super::answer::Answer;

/// What went wrong, as `application/problem+json`.
///
/// ```
/// use http::StatusCode;
/// use tollkeeper::http::Problem;
///
/// let problem = Problem::new(StatusCode::NOT_FOUND, "there is no rule named `login`").field("rule");
/// let response: http::Response<Vec<u8>> = problem.into_response();
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// assert_eq!(
///     String::from_utf8_lossy(response.body()),
///     r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"there is no rule named `login`","field":"rule"}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    kind: &'static str,
    title: &'static str,
    status: StatusCode,
    detail: String,
    members: Vec<(&'static str, Value)>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// The content type.
    pub const CONTENT_TYPE: &'static str = "application/problem+json";

    /// A problem that its status describes well enough: the type is `about:blank`, the title the name of the status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Error");
        Problem { kind: "about:blank", title, status, detail: detail.into(), members: Vec::new(), headers: Vec::new() }
    }

    /// 400 for a request with an invalid field. An empty name means the request as a whole.
    ///
    /// ```
    /// use tollkeeper::http::Problem;
    ///
    /// assert_eq!(Problem::invalid("cost", "must be a whole number").detail(), "cost: must be a whole number");
    /// ```
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Problem {
        let (field, problem) = (field.into(), problem.into());
        if field.is_empty() {
            return Problem::new(StatusCode::BAD_REQUEST, problem);
        }
        Problem::new(StatusCode::BAD_REQUEST, format!("{field}: {problem}")).field(field)
    }

    /// Sets the problem type: the URI that identifies it, and its title.
    pub fn of_type(self, kind: &'static str, title: &'static str) -> Problem {
        Problem { kind, title, ..self }
    }

    /// Names the field that is wrong, in the member `field`.
    pub fn field(self, field: impl Into<String>) -> Problem {
        self.member("field", &field.into())
    }

    /// Adds a member. One that cannot be serialized as JSON is left out.
    pub fn member(mut self, name: &'static str, value: &impl Serialize) -> Problem {
        self.members.extend(serde_json::to_value(value).map(|value| (name, value)));
        self
    }

    /// Adds a header to the response.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// Asks the client to use another connection: what it still sends on this one will not be read.
    pub fn closing(self) -> Problem {
        self.header(CONNECTION, HeaderValue::from_static("close"))
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What failed, with what value, and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The document.
    pub(crate) fn document(&self) -> String {
        // Strings, numbers and JSON values: serializing them cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The problem as a response that must not be cached.
    pub fn into_response<B: From<Vec<u8>>>(self) -> Response<B> {
        Answer::from(self).into_response()
    }
}

/// `type`, `title`, `status` and `detail`, then the other members in the order in which they were added.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_map(Some(4 + self.members.len()))?;
        document.serialize_entry("type", self.kind)?;
        document.serialize_entry("title", self.title)?;
        document.serialize_entry("status", &self.status.as_u16())?;
        document.serialize_entry("detail", &self.detail)?;
        for (name, value) in &self.members {
            document.serialize_entry(name, value)?;
        }
        document.end()
    }
}

impl From<Problem> for Answer {
    fn from(mut problem: Problem) -> Answer {
        let mut headers: HeaderMap = std::mem::take(&mut problem.headers).into_iter().collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::CONTENT_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Answer { status: problem.status, headers, body: problem.document().into_bytes() }
    }
}
