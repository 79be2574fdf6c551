//! What is known of a client beside what it says.

use std::borrow::Cow;
use std::sync::Arc;

use tollkeeper::Request;
use tollkeeper::http::HttpRequest;

use crate::tls::CLIENT_ATTRIBUTE;

/// A request with the name in the certificate that its client showed. Nothing that a client writes can stand in for it.
pub(super) struct Certified<'r> {
    pub(super) request: HttpRequest<'r>,
    pub(super) client: Option<Arc<str>>,
}

impl Request for Certified<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            CLIENT_ATTRIBUTE => self.client.as_deref().map(Cow::Borrowed),
            _ => self.request.attribute(name),
        }
    }

    fn cost(&self) -> u32 {
        self.request.cost()
    }
}
