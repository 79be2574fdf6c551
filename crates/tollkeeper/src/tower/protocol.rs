//! The response to a refused request, in its own protocol: HTTP or gRPC.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tollkeeper_core::{CostError, Span, Timestamp, Verdict};

use crate::http::{
    Answer, AnswerStyle, AttributeSource, Problem, bad_cost_detail, contradiction_detail, denial_detail, retry_after,
};
use crate::limiter::CheckError;
use crate::store::Overloaded;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Status codes of gRPC.
const INVALID_ARGUMENT: u16 = 3;
const RESOURCE_EXHAUSTED: u16 = 8;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// A `grpc-message` is printable ASCII without `%`.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The client's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Statuses and problem documents.
    Http,
    /// Trailers-only responses with this content type.
    Grpc(HeaderValue),
}

impl Protocol {
    pub(super) fn of(headers: &HeaderMap) -> Protocol {
        match headers.get(CONTENT_TYPE) {
            // Browser clients (gRPC-Web) expect the type that they sent.
            Some(web) if web.as_bytes().starts_with(b"application/grpc-web") => Protocol::Grpc(web.clone()),
            Some(grpc) if grpc.as_bytes().starts_with(b"application/grpc") => {
                Protocol::Grpc(HeaderValue::from_static("application/grpc"))
            }
            _ => Protocol::Http,
        }
    }

    pub(super) fn deny(&self, style: &AnswerStyle, verdict: &Verdict, now: Timestamp) -> Response<Bytes> {
        let Protocol::Grpc(content_type) = self else {
            return style.deny(verdict, now).into_response();
        };
        let status = if verdict.is_unavailable() { UNAVAILABLE } else { RESOURCE_EXHAUSTED };
        let mut headers = style.headers_for(verdict, now);
        headers.extend(retry_after(verdict).map(|seconds| (RETRY_AFTER, seconds)));
        // A negative number tells clients that retry automatically (gRFC A6) not to.
        let pushback = verdict.retry_after().map_or(-1, |wait| wait.as_millis_ceil() as i64);
        headers.insert(GRPC_RETRY_PUSHBACK_MS, pushback.into());
        trailers_only(content_type, status, &denial_detail(verdict), headers)
    }

    pub(super) fn contradiction(&self, place: &AttributeSource) -> Response<Bytes> {
        match self {
            Protocol::Http => Answer::contradiction(place).into_response(),
            Protocol::Grpc(content_type) => {
                trailers_only(content_type, INVALID_ARGUMENT, &contradiction_detail(place), HeaderMap::new())
            }
        }
    }

    /// The server provides no client address although a rule needs it. The log says what to do; clients need not know.
    pub(super) fn no_address(&self, rule: &str) -> Response<Bytes> {
        let detail = format!("Rule `{rule}` limits by client address, and the server does not provide one.");
        match self {
            Protocol::Http => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response(),
            Protocol::Grpc(content_type) => trailers_only(content_type, INTERNAL, &detail, HeaderMap::new()),
        }
    }

    /// A request that was not decided.
    pub(super) fn undecided(&self, error: &CheckError) -> Response<Bytes> {
        match error {
            CheckError::Cost(error) => self.bad_cost(error),
            CheckError::Overloaded(overloaded) => self.overloaded(overloaded),
        }
    }

    fn overloaded(&self, overloaded: &Overloaded) -> Response<Bytes> {
        let Protocol::Grpc(content_type) = self else { return Answer::overloaded(overloaded).into_response() };
        let wait = Span::from(overloaded.retry_after);
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, wait.as_secs_ceil().into());
        headers.insert(GRPC_RETRY_PUSHBACK_MS, wait.as_millis_ceil().into());
        trailers_only(content_type, UNAVAILABLE, &overloaded.to_string(), headers)
    }

    fn bad_cost(&self, error: &CostError) -> Response<Bytes> {
        match self {
            Protocol::Http => Answer::bad_cost(error).into_response(),
            Protocol::Grpc(content_type) => {
                trailers_only(content_type, INVALID_ARGUMENT, &bad_cost_detail(error), HeaderMap::new())
            }
        }
    }
}

/// A call that failed before it began: 200, no body, and the trailers as headers.
fn trailers_only(content_type: &HeaderValue, status: u16, message: &str, headers: HeaderMap) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.headers_mut() = headers;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, status.into());
    let message = utf8_percent_encode(message, ESCAPED).to_string();
    headers.extend(HeaderValue::try_from(message).ok().map(|message| (GRPC_MESSAGE, message)));
    response
}

#[cfg(test)]
mod tests {
    use tollkeeper_core::{Descriptor, Outcome, Policy, Row, RuleSpec, Span};

    use super::*;

    /// A denial by the failure policy, which needs no store.
    fn denied(retry_after: Option<Span>) -> Verdict {
        let rule = RuleSpec { name: "strict".into(), key: "global".into(), limit: "5/s".into(), ..RuleSpec::default() };
        let policy = Policy::new([rule]).expect("valid rule");
        let mut charges = policy.charges(&Descriptor::default()).expect("charges");
        Verdict::new(vec![Row::without_store(charges.remove(0), Outcome::Denied { retry_after })])
    }

    fn speaking(content_type: &'static str) -> Protocol {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect();
        Protocol::of(&headers)
    }

    #[test]
    fn the_content_type_shows_the_protocol() {
        let grpc = Protocol::Grpc(HeaderValue::from_static("application/grpc"));
        assert_eq!(speaking("application/grpc"), grpc);
        assert_eq!(speaking("application/grpc+proto"), grpc);
        let web = "application/grpc-web+proto";
        assert_eq!(speaking(web), Protocol::Grpc(HeaderValue::from_static(web)));
        assert_eq!(speaking("application/json"), Protocol::Http);
        assert_eq!(Protocol::of(&HeaderMap::new()), Protocol::Http);
    }

    #[test]
    fn a_store_that_is_unreachable_is_unavailable() {
        let verdict = denied(Some(Span::SECOND));
        let response = speaking("application/grpc").deny(&AnswerStyle::default(), &verdict, Timestamp::default());
        assert_eq!((response.status().as_u16(), &response.headers()[GRPC_STATUS]), (200, &HeaderValue::from(14)));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
        assert!(response.body().is_empty());
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.headers()[GRPC_RETRY_PUSHBACK_MS], "1000");
        let response = Protocol::Http.deny(&AnswerStyle::default(), &verdict, Timestamp::default());
        assert_eq!(response.status(), 503);
    }

    #[test]
    fn what_can_never_pass_is_not_retried() {
        let response = speaking("application/grpc").deny(&AnswerStyle::default(), &denied(None), Timestamp::default());
        assert!(!response.headers().contains_key(RETRY_AFTER));
        assert_eq!(response.headers()[GRPC_RETRY_PUSHBACK_MS], "-1");
    }

    #[test]
    fn messages_are_escaped() {
        let error = CostError { rule: "r".into(), attribute: "größe%\n".into(), value: "secret".into() };
        let response = speaking("application/grpc").bad_cost(&error);
        assert_eq!(response.headers()[GRPC_STATUS], "3");
        let message = response.headers()[GRPC_MESSAGE].to_str().expect("ASCII");
        assert_eq!(message, "Attribute `gr%C3%B6%C3%9Fe%25%0A` is the cost of rule `r` and must be a whole number.");
    }
}
