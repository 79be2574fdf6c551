//! The verified identity of a client, beside what its request says.

use std::borrow::Cow;
use std::sync::Arc;

use tollkeeper::Request;
use tollkeeper::http::HttpRequest;

use crate::tls::CLIENT_ATTRIBUTE;

/// A request with the name in its client's verified certificate. Nothing that a client sends can replace it.
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
