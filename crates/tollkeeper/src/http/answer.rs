//! A response that replaces the service's own.

use std::borrow::Cow;

use http::{HeaderMap, Response, StatusCode};

/// Status, headers and body of a response that replaces the service's own.
///
/// ```
/// use tollkeeper::http::Answer;
/// # let answer = Answer { status: http::StatusCode::TOO_MANY_REQUESTS, headers: Default::default(), body: vec![] };
/// let response: http::Response<Vec<u8>> = answer.into_response();
/// assert_eq!(response.status(), 429);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// All headers of the response.
    pub headers: HeaderMap,
    /// The problem document.
    pub body: Vec<u8>,
}

/// An [`Answer`] as plain texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainAnswer {
    /// The status.
    pub status: StatusCode,
    /// All headers of the response, with names in lower case.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// The problem document, or the rule's own text.
    pub body: String,
}

impl Answer {
    /// As an HTTP response.
    pub fn into_response<B: From<Vec<u8>>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}
