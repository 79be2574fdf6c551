//! The layer and its settings.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use http::request::Parts;
use tollkeeper_core::Request;
use tower_layer::Layer;

use super::service::TollkeeperService;
use crate::http::{AnswerStyle, HttpRequest, Identity};
use crate::limiter::Limiter;

type FromParts<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;
type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// Limits the requests of a service by a [`Limiter`].
///
/// ```
/// use std::time::Duration;
/// use tollkeeper::http::{AnswerStyle, Identity};
/// use tollkeeper::{HeaderStyle, Limiter, MemoryStore, Policy, tower::TollkeeperLayer};
///
/// let limiter = Limiter::new(Policy::default(), MemoryStore::new());
/// let layer = TollkeeperLayer::new(limiter)
///     .identity(Identity::new().trust(["10.0.0.0/8".parse()?]))
///     .answer(AnswerStyle { headers: HeaderStyle::Draft06, ..AnswerStyle::default() })
///     .cost(|request| if request.method == http::Method::POST { 5 } else { 1 })
///     .wait_up_to(Duration::from_millis(200));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TollkeeperLayer {
    settings: Arc<Settings>,
}

/// What one layer does, shared by all services that it made.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limiter: Arc<Limiter>,
    pub(super) style: AnswerStyle,
    pub(super) patience: Duration,
    pub(super) identity: Identity,
    peer: FindPeer,
    extractors: Vec<(String, FromParts<Option<String>>)>,
    cost: FromParts<u32>,
    skip: FromParts<bool>,
}

impl TollkeeperLayer {
    /// A layer that decides by this limiter, believes no header about where a request comes from, and never waits
    /// for a denied request.
    pub fn new(limiter: impl Into<Arc<Limiter>>) -> TollkeeperLayer {
        let settings = Settings {
            limiter: limiter.into(),
            style: AnswerStyle::default(),
            patience: Duration::ZERO,
            identity: Identity::new(),
            peer: Arc::new(address_in),
            extractors: Vec::new(),
            cost: Arc::new(|_| 1),
            skip: Arc::new(|_| false),
        };
        TollkeeperLayer { settings: Arc::new(settings) }
    }

    /// How requests become attributes: trusted proxies, the IPv6 prefix, names for headers and cookies.
    #[must_use]
    pub fn identity(self, identity: Identity) -> Self {
        self.with(|settings| settings.identity = identity)
    }

    /// How denials and limit headers are written.
    #[must_use]
    pub fn answer(self, style: AnswerStyle) -> Self {
        self.with(|settings| settings.style = style)
    }

    /// Where a server leaves the socket's address; without it there is no attribute `ip`, and rules that need it do
    /// not apply. Unless told, an [`IpAddr`] or a [`SocketAddr`] among the extensions is taken.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use axum::extract::ConnectInfo;
    /// use tonic::transport::server::TcpConnectInfo;
    /// # let limiter = tollkeeper::Limiter::new(Default::default(), tollkeeper::MemoryStore::new());
    /// # let layer = tollkeeper::tower::TollkeeperLayer::new(limiter);
    /// // axum, served with `into_make_service_with_connect_info::<SocketAddr>()`:
    /// let for_axum = layer.clone().peer(|found| found.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip()));
    /// // tonic:
    /// let for_tonic = layer.peer(|found| found.get::<TcpConnectInfo>()?.remote_addr().map(|peer| peer.ip()));
    /// ```
    #[must_use]
    pub fn peer(self, find: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.peer = Arc::new(find))
    }

    /// An attribute that only the application knows, such as the user that an outer layer has authenticated. It hides
    /// whatever else has that name, and is asked for when a rule wants it.
    ///
    /// ```
    /// # let limiter = tollkeeper::Limiter::new(Default::default(), tollkeeper::MemoryStore::new());
    /// # let layer = tollkeeper::tower::TollkeeperLayer::new(limiter);
    /// #[derive(Clone)]
    /// struct User { id: u64 }
    /// let layer = layer.attribute("user_id", |request| Some(request.extensions.get::<User>()?.id.to_string()));
    /// ```
    #[must_use]
    pub fn attribute(
        self,
        name: impl Into<String>,
        extract: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.extractors.push((name.into(), Arc::new(extract))))
    }

    /// What a request costs, before each rule multiplies it by its own; 1 unless told. 0 peeks.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Arc::new(cost))
    }

    /// Requests that are not limited at all, such as health checks. Their responses carry no limit headers.
    #[must_use]
    pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.skip = Arc::new(skip))
    }

    /// Lets a denied request wait and try again, for at most this long in all: while its exact wait fits into what is
    /// left. It is denied at once when it does not. Not at all unless told.
    ///
    /// Each waiting request keeps its connection. Whoever waited is decided anew among all others, so this smooths
    /// short bursts and is no queue; a `leaky_bucket` rule is one. A slot of a `concurrency` rule is waited for until
    /// the first hold expires, which is rarely soon.
    #[must_use]
    pub fn wait_up_to(self, patience: Duration) -> Self {
        self.with(|settings| settings.patience = patience)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl fmt::Debug for TollkeeperLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl<S> Layer<S> for TollkeeperLayer {
    type Service = TollkeeperService<S>;

    fn layer(&self, inner: S) -> TollkeeperService<S> {
        TollkeeperService::new(inner, self.settings.clone())
    }
}

fn address_in(extensions: &Extensions) -> Option<IpAddr> {
    let address = extensions.get::<IpAddr>().copied();
    address.or_else(|| extensions.get::<SocketAddr>().map(SocketAddr::ip))
}

impl Settings {
    pub(super) fn skips(&self, parts: &Parts) -> bool {
        (self.skip)(parts)
    }

    pub(super) fn describe<'r>(&'r self, parts: &'r Parts) -> Described<'r> {
        let peer = (self.peer)(&parts.extensions);
        let http = self.identity.describe(&parts.method, &parts.uri, &parts.headers, peer);
        Described { http: http.with_cost((self.cost)(parts)), parts, settings: self }
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
    parts: &'r Parts,
    settings: &'r Settings,
}

impl Request for Described<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        // The last one added hides those before it.
        match self.settings.extractors.iter().rev().find(|(known, _)| known == name) {
            Some((_, extract)) => extract(self.parts).map(Cow::Owned),
            None => self.http.attribute(name),
        }
    }

    fn cost(&self) -> u32 {
        self.http.cost()
    }
}
