//! Problem documents as results of handlers.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::{IntoResponse, Response};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Method, StatusCode, Uri};
use tollkeeper::http::Problem;

use crate::route::Route;
use crate::strict::{nearest, quoted};

/// The problem that a handler ends with.
#[derive(Debug)]
pub(super) struct Refused(Problem);

impl Refused {
    pub(super) fn into_problem(self) -> Problem {
        self.0
    }
}

impl<E: Into<Problem>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

/// The named part of the path. axum would refuse one that is not UTF-8 without a problem document.
pub(super) fn segment(name: &str, path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    path.map(|Path(text)| text).map_err(|_| Problem::invalid(name, "is not UTF-8; percent-encode it as UTF-8"))
}

/// 401, saying how to authenticate.
pub(super) fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

pub(super) async fn not_found(uri: Uri) -> Refused {
    let hint = match nearest(uri.path(), Route::NAMES).filter(|route| *route != "/") {
        Some(route) => format!("did you mean {route}?"),
        None => "GET /openapi.json lists the routes".into(),
    };
    Problem::new(StatusCode::NOT_FOUND, format!("there is nothing at {}; {hint}", quoted(uri.path()))).into()
}

/// The router adds `Allow`.
pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Refused {
    let method = quoted(method.as_str());
    let detail = format!("{} does not accept {method}; the Allow header lists the methods", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).into()
}
