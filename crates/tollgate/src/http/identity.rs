//! How an HTTP request becomes attributes: what is configured once and asked for every request.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri};
use ipnet::IpNet;

use super::address::{TrustedProxies, group};
use super::attributes::{AttributeSource, HttpRequest};

/// How an HTTP request becomes attributes.
///
/// Unless told otherwise no header is believed about where a request comes from, and IPv6 clients are grouped by
/// /64, the least that one subscriber owns.
///
/// ```
/// use tollgate::http::Identity;
///
/// let identity = Identity::new()
///     .trust(["10.0.0.0/8".parse()?])
///     .ipv6_prefix(56)
///     .identify("user_id", "header.x-user-id".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Identity {
    trusted: TrustedProxies,
    ipv6_prefix: u8,
    mapped: BTreeMap<String, AttributeSource>,
}

impl Default for Identity {
    fn default() -> Self {
        Identity { trusted: TrustedProxies::default(), ipv6_prefix: Identity::IPV6_PREFIX, mapped: BTreeMap::new() }
    }
}

impl Identity {
    /// How many bits of an IPv6 address name a client unless told.
    pub const IPV6_PREFIX: u8 = 64;

    /// Believes no header about the client's address, groups IPv6 clients by /64 and maps nothing.
    pub fn new() -> Identity {
        Identity::default()
    }

    /// Adds proxies whose word is taken for the address of whom they forward. A network written as IPv4 covers the
    /// same addresses in their IPv4-mapped form; `::/0` covers IPv6 alone.
    #[must_use]
    pub fn trust(mut self, proxies: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted.extend(proxies);
        self
    }

    /// How many bits of an IPv6 address name a client; from 128 on every address is its own.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// Gives an attribute a name of the user's choice. It hides whatever had that name before, `ip` included.
    ///
    /// ```
    /// use tollgate::http::{AttributeSource, Identity};
    ///
    /// let identity = Identity::new()
    ///     .identify("user_id", "header.x-user-id".parse()?)
    ///     .identify("session", AttributeSource::Cookie("sid".into()));
    /// # Ok::<(), tollgate::http::AttributeSourceError>(())
    /// ```
    #[must_use]
    pub fn identify(mut self, attribute: impl Into<String>, from: AttributeSource) -> Self {
        self.mapped.insert(attribute.into(), from);
        self
    }

    /// A request as rules see it. `peer` is the socket's address; without it there is no `ip`. Nothing is looked up
    /// before a rule asks for it.
    pub fn describe<'r>(
        &'r self,
        method: &'r Method,
        uri: &'r Uri,
        headers: &'r HeaderMap,
        peer: Option<IpAddr>,
    ) -> HttpRequest<'r> {
        HttpRequest::new(self, method, uri, headers, peer)
    }

    /// Whose request it is, behind the trusted proxies. `peer` is the socket's address.
    ///
    /// Headers are read only if the peer is a trusted proxy. The hops that `X-Forwarded-For` or `Forwarded` tells
    /// are followed from the nearest one for as long as they are trusted; the first that is not is the client. A hop
    /// that is no address ends the walk at the last one that was: what stands further away was written by nobody
    /// who is trusted.
    ///
    /// When a request carries both headers a hop counts only if both tell the same one. A proxy writes one of them
    /// and may pass the other on as the client sent it, and nothing in the request says which: preferring either
    /// would let clients of half the proxies choose their address. So have the proxy remove the header that it does
    /// not write; until then a client that sends it is counted as the proxy.
    ///
    /// ```
    /// use tollgate::http::Identity;
    ///
    /// let identity = Identity::new().trust(["10.0.0.0/8".parse()?]);
    /// let mut headers = http::HeaderMap::new();
    /// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.7, 10.0.0.9".parse()?);
    ///
    /// let proxy = "10.0.0.1".parse()?;
    /// assert_eq!(identity.client_address(&headers, proxy).to_string(), "203.0.113.7");
    /// let stranger = "198.51.100.4".parse()?;
    /// assert_eq!(identity.client_address(&headers, stranger), stranger);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        self.trusted.client_address(headers, peer)
    }

    /// Whether the word of this peer is taken for where its requests come from.
    ///
    /// ```
    /// use tollgate::http::Identity;
    ///
    /// let identity = Identity::new().trust(["10.0.0.0/8".parse()?]);
    /// assert!(identity.trusts("10.0.0.1".parse()?));
    /// assert!(!identity.trusts("203.0.113.7".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.contain(peer.to_canonical())
    }

    /// The `ip` attribute: the client's address, or the network that stands for it.
    pub(super) fn ip(&self, headers: &HeaderMap, peer: IpAddr) -> String {
        group(self.client_address(headers, peer), self.ipv6_prefix)
    }

    pub(super) fn mapped(&self, attribute: &str) -> Option<&AttributeSource> {
        self.mapped.get(attribute)
    }
}
