//! What the handlers of this front share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use http_body_util::{Either, Full};
use tollkeeper::http::Problem;

use crate::front::body;
use crate::front::connections::Limits;
use crate::metrics::Front;
use crate::service::Service;

/// A body that is known as a whole and small, or any other.
pub(super) type Answered = Either<Full<Bytes>, Body>;

/// What handlers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) service: Arc<Service>,
    pub(super) limits: Limits,
}

impl Shared {
    /// Counts requests that were refused before anything was decided.
    pub(super) fn refused(&self, requests: usize) {
        self.service.refused(Front::Http, requests);
    }

    /// The longest that a request may take. Reading a body has its own, shorter deadline; after that only the store is
    /// waited for, which has a deadline too.
    pub(super) fn backstop(&self) -> Duration {
        2 * self.limits.request
    }

    /// The whole body of a request.
    pub(super) async fn body(&self, request: Request) -> Result<Bytes, Problem> {
        body::read(request, self.limits.request).await
    }
}
