//! The layer and its settings.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Once};
use std::time::Duration;

use http::request::Parts;
use http::{Extensions, HeaderName};
use tollkeeper_core::{Policy, Quota, QuotaError, Rule, RuleSpec};
use tower_layer::Layer;

use super::service::TollkeeperService;
use super::settings::Settings;
use crate::http::{AnswerStyle, AttributeSource, Identity};
use crate::limiter::Limiter;
use crate::store::MemoryStore;

/// Middleware that limits the requests of a service.
///
/// [`per_ip`](TollkeeperLayer::per_ip) and [`per_header`](TollkeeperLayer::per_header) need no more than a limit;
/// [`new`](TollkeeperLayer::new) takes a [`Limiter`] with rules and a store of your choice.
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

impl TollkeeperLayer {
    /// The same limit for each client address, in memory.
    ///
    /// ```
    /// use tollkeeper::tower::TollkeeperLayer;
    ///
    /// let layer = TollkeeperLayer::per_ip("100/min burst 20")?;
    /// # Ok::<(), tollkeeper::QuotaError>(())
    /// ```
    ///
    /// The address is the socket's, see [`peer`](TollkeeperLayer::peer). Behind a proxy that is the proxy's own address: name the
    /// proxies to trust with [`identity`](TollkeeperLayer::identity). A request for which the server provides no address is
    /// answered with status 500 and logged as an error, so that a misconfigured server cannot pass for an unlimited one.
    pub fn per_ip<Q>(quota: Q) -> Result<TollkeeperLayer, QuotaError>
    where
        Q: TryInto<Quota>,
        QuotaError: From<Q::Error>,
    {
        TollkeeperLayer::of_rule(Rule::new("per-ip").key("{ip}").quota(quota.try_into()?))
    }

    /// The same limit for each value of a header such as an API key, in memory. Requests without the header are limited by
    /// client address, as [`per_ip`](TollkeeperLayer::per_ip) does.
    ///
    /// ```
    /// use tollkeeper::{Quota, tower::TollkeeperLayer};
    ///
    /// let layer = TollkeeperLayer::per_header("x-api-key", Quota::per_minute(100).burst(20))?;
    /// # Ok::<(), tollkeeper::QuotaError>(())
    /// ```
    ///
    /// A client that invents a new value for each request gets a new bucket for each request. Put this behind the layer that
    /// authenticates, or add a limit [`per_ip`](TollkeeperLayer::per_ip). A request that has the header twice, with different
    /// values, is answered with status 400.
    pub fn per_header<Q>(name: &'static str, quota: Q) -> Result<TollkeeperLayer, QuotaError>
    where
        Q: TryInto<Quota>,
        QuotaError: From<Q::Error>,
    {
        let name = HeaderName::from_static(name);
        let rule = Rule::new("per-header").key(format!("{{header.{name}|ip}}")).quota(quota.try_into()?);
        let identity = Identity::new().single(AttributeSource::Header(name));
        Ok(TollkeeperLayer::of_rule(rule)?.identity(identity))
    }

    fn of_rule(rule: RuleSpec) -> Result<TollkeeperLayer, QuotaError> {
        let policy = Policy::new([rule]).map_err(|errors| QuotaError::Unreadable { problem: errors.to_string() })?;
        Ok(TollkeeperLayer::new(Limiter::new(policy, MemoryStore::new())))
    }

    /// Limits by the rules of this limiter. By default no forwarding header is trusted and denied requests do not
    /// wait; the methods below change that.
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
            logged: Arc::new(Once::new()),
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

    /// Where the server puts the address of the connection, for the attribute `ip`.
    ///
    /// By default the request's extensions are searched for an [`IpAddr`] or a [`SocketAddr`], with the feature
    /// `axum` also for axum's `ConnectInfo<SocketAddr>`, and with the feature `tonic` for tonic's `TcpConnectInfo`.
    /// If a rule needs `ip` and there is no address, the request is answered with status 500 (gRPC `INTERNAL`) and
    /// the reason is logged: a limit that silently never applies would be worse.
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

    /// An attribute that only the application knows, such as the user that an outer layer has authenticated. It
    /// overrides any other attribute of that name, and is evaluated only when a rule needs it.
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

    /// What a request costs, before each rule multiplies it by its own; 1 by default. 0 peeks.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Arc::new(cost))
    }

    /// Requests that are not limited at all, such as health checks. Their responses carry no limit headers.
    #[must_use]
    pub fn skip(self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.skip = Arc::new(skip))
    }

    /// Lets a denied request wait and try again, for at most this long in total. A request whose exact wait does not fit into
    /// the time left is denied at once. By default nothing waits.
    ///
    /// Each waiting request keeps its connection. No order is guaranteed among waiting requests: this smooths short bursts. Use
    /// a `leaky_bucket` rule for a queue. A request denied by a `concurrency` rule waits until the first slot expires, which is
    /// rarely soon.
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

/// The address that a server put into the extensions.
fn address_in(extensions: &Extensions) -> Option<IpAddr> {
    let address = extensions.get::<IpAddr>().copied();
    let address = address.or_else(|| extensions.get::<SocketAddr>().map(SocketAddr::ip));
    #[cfg(feature = "axum")]
    let address = address.or_else(|| {
        let connection = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()?;
        Some(connection.0.ip())
    });
    #[cfg(feature = "tonic")]
    let address = address.or_else(|| {
        // Over TLS too: tonic also provides the connection below it.
        let connection = extensions.get::<tonic::transport::server::TcpConnectInfo>()?;
        Some(connection.remote_addr()?.ip())
    });
    address
}

#[cfg(test)]
mod tests;
