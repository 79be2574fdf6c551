//! Every error is a problem document (RFC 9457) that says what failed, with what value, and what to do.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Serialize;

use crate::explain::nearest;
use crate::route::Route;
use crate::wire::{Invalid, quoted};

/// What went wrong.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status, again.
    status: u16,
    /// What failed, with what value, and what to do.
    detail: String,
    /// The field that is wrong, such as `checks[3].cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    field: Option<String>,
    #[serde(skip)]
    header: Option<(&'static str, &'static str)>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        let title = status.canonical_reason().unwrap_or("Error");
        Problem {
            kind: "about:blank",
            title,
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            header: None,
        }
    }

    /// 400, naming the field.
    pub(super) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Problem {
        Invalid { field: field.into(), problem: problem.into() }.into()
    }

    /// Names the field that is wrong.
    pub(super) fn about(self, field: &str) -> Problem {
        Problem { field: Some(field.into()), ..self }
    }

    /// 401, saying how to authenticate.
    pub(super) fn unauthorized(detail: &str) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, detail).with("www-authenticate", "Bearer")
    }

    /// The client is still sending what nobody will read: the connection cannot be used again.
    pub(crate) fn closing(self) -> Problem {
        self.with("connection", "close")
    }

    fn with(self, name: &'static str, value: &'static str) -> Problem {
        Problem { header: Some((name, value)), ..self }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        let field = Some(invalid.field.clone()).filter(|field| !field.is_empty());
        Problem { field, ..Problem::new(StatusCode::BAD_REQUEST, invalid.to_string()) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("a problem is always JSON");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers
            .extend(self.header.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))));
        response
    }
}

pub(super) async fn not_found(uri: Uri) -> Problem {
    let hint = match nearest(uri.path(), Route::NAMES).filter(|route| *route != "/") {
        Some(route) => format!("did you mean {route}?"),
        None => "GET /openapi.json lists what there is".into(),
    };
    Problem::new(StatusCode::NOT_FOUND, format!("there is nothing at {}; {hint}", quoted(uri.path())))
}

/// The router adds `Allow`.
pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let method = quoted(method.as_str());
    let detail = format!("{} does not take {method}; the Allow header names what it takes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
