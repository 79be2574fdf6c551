//! What the handlers of this front share.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use tollkeeper::http::Problem;

use crate::front::body;
use crate::front::connections::Limits;
use crate::metrics::Front;
use crate::service::Service;

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
