//! The settings of a layer, and how it describes a request.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Once};
use std::time::Duration;

use http::Extensions;
use http::request::Parts;
use tollkeeper_core::Request;

use crate::http::{AnswerStyle, HttpRequest, Identity};
use crate::limiter::Limiter;

pub(super) type FromParts<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;
pub(super) type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// The settings of one layer, shared by all services made from it.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limiter: Arc<Limiter>,
    pub(super) style: AnswerStyle,
    pub(super) patience: Duration,
    pub(super) identity: Identity,
    pub(super) peer: FindPeer,
    pub(super) extractors: Vec<(String, FromParts<Option<String>>)>,
    pub(super) cost: FromParts<u32>,
    pub(super) skip: FromParts<bool>,
    /// A missing address is logged once: clients must not be able to fill the log.
    pub(super) logged: Arc<Once>,
}

impl Settings {
    pub(super) fn skips(&self, parts: &Parts) -> bool {
        (self.skip)(parts)
    }

    pub(super) fn describe<'r>(&'r self, parts: &'r Parts) -> Described<'r> {
        let peer = (self.peer)(&parts.extensions);
        let http = self.identity.describe(&parts.method, &parts.uri, &parts.headers, peer);
        Described { http: http.with_cost((self.cost)(parts)), has_peer: peer.is_some(), parts, settings: self }
    }

    /// A rule that needs the client's address although the server provides none: it would never apply.
    pub(super) fn rule_without_address(&self, request: &Described<'_>) -> Option<Arc<str>> {
        if request.has_peer || request.attribute("ip").is_some() {
            return None;
        }
        let policy = self.limiter.policy();
        let lacks_address = |names: &Vec<String>| {
            names.iter().any(|name| name == "ip") && names.iter().all(|name| request.attribute(name).is_none())
        };
        let unmet = policy.unmet(request).map(|position| &policy.requirements()[position]);
        let rule =
            unmet.filter(|unmet| unmet.attributes.iter().any(lacks_address)).find_map(|unmet| unmet.rules.first());
        let rule = policy.rules()[*rule?].shared_name();
        self.logged.call_once(|| {
            tracing::error!(
                rule = &*rule,
                "rate limiting by client address is on, but the server provides no address, so requests are answered with \
                 status 500; with axum, enable the feature `axum` of tollkeeper and serve the app with \
                 into_make_service_with_connect_info::<SocketAddr>(); otherwise provide it with .peer(...)"
            );
        });
        Some(rule)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TollkeeperLayer")
            .field("identity", &self.identity)
            .field("style", &self.style)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// A request with what the application adds to it.
pub(super) struct Described<'r> {
    http: HttpRequest<'r>,
    /// Whether the server provided the address of the connection.
    has_peer: bool,
    parts: &'r Parts,
    settings: &'r Settings,
}

impl Request for Described<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        // The one added last overrides earlier ones.
        match self.settings.extractors.iter().rev().find(|(known, _)| known == name) {
            Some((_, extract)) => extract(self.parts).map(Cow::Owned),
            None => self.http.attribute(name),
        }
    }

    fn cost(&self) -> u32 {
        self.http.cost()
    }
}
