//! How an HTTP request becomes attributes: configured once, used for every request.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Uri};
use ipnet::IpNet;

use super::address::{AddressSource, TrustedProxies, group};
use super::source::AttributeSource;

/// How an HTTP request becomes attributes.
///
/// By default no forwarding header is trusted, and IPv6 clients are grouped by /64, the least that one subscriber
/// owns.
///
/// ```
/// use tollkeeper::http::Identity;
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
    address: AddressSource,
    ipv6_prefix: u8,
    mapped: BTreeMap<String, AttributeSource>,
    /// Places that may hold only one value.
    single: Vec<AttributeSource>,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            trusted: TrustedProxies::default(),
            address: AddressSource::default(),
            ipv6_prefix: Identity::IPV6_PREFIX,
            mapped: BTreeMap::new(),
            single: Vec::new(),
        }
    }
}

impl Identity {
    /// How many bits of an IPv6 address name a client by default.
    pub const IPV6_PREFIX: u8 = 64;

    /// Trusts no forwarding header, groups IPv6 clients by /64 and maps nothing.
    pub fn new() -> Identity {
        Identity::default()
    }

    /// Adds proxies whose forwarding headers are trusted. A network written as IPv4 also covers its IPv4-mapped
    /// addresses; `::/0` covers IPv6 alone.
    #[must_use]
    pub fn trust(mut self, proxies: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted.extend(proxies);
        self
    }

    /// The header in which trusted proxies pass on the client's address. No other header is then read, so it does not
    /// matter what a client writes into them.
    ///
    /// ```
    /// use tollkeeper::http::{AddressSource, Identity};
    ///
    /// let identity = Identity::new().trust(["10.0.0.0/8".parse()?]).address_from(AddressSource::XForwardedFor);
    /// let mut headers = http::HeaderMap::new();
    /// headers.insert("x-forwarded-for", "203.0.113.7".parse()?);
    /// headers.insert("forwarded", "for=6.6.6.6".parse()?);
    /// assert_eq!(identity.client_address(&headers, "10.0.0.1".parse()?).to_string(), "203.0.113.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn address_from(mut self, source: AddressSource) -> Self {
        self.address = source;
        self
    }

    /// How many bits of an IPv6 address identify a client; from 128 on, every address is its own client.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// Gives an attribute a name of your choice. It overrides any other attribute of that name, even `ip`.
    ///
    /// ```
    /// use tollkeeper::http::{AttributeSource, Identity};
    ///
    /// let identity = Identity::new()
    ///     .identify("user_id", "header.x-user-id".parse()?)
    ///     .identify("session", AttributeSource::Cookie("sid".into()));
    /// # Ok::<(), tollkeeper::http::AttributeSourceError>(())
    /// ```
    #[must_use]
    pub fn identify(mut self, attribute: impl Into<String>, from: AttributeSource) -> Self {
        self.mapped.insert(attribute.into(), from.clone());
        self.single(from)
    }

    /// Marks a place that identifies the client and so may hold only one value. [`Identity::identify`] implies it.
    #[must_use]
    pub fn single(mut self, place: AttributeSource) -> Self {
        if !self.single.contains(&place) {
            self.single.push(place);
        }
        self
    }

    /// Whether a place may hold only one value, so that [`Identity::contradiction`] looks at it.
    ///
    /// ```
    /// use tollkeeper::http::{AttributeSource, Identity};
    ///
    /// let session = AttributeSource::Cookie("sid".into());
    /// assert!(Identity::new().identify("user_id", session.clone()).is_single(&session));
    /// assert!(!Identity::new().is_single(&session));
    /// ```
    pub fn is_single(&self, place: &AttributeSource) -> bool {
        self.single.contains(place)
    }

    /// The place in which a request gives two different identities, if there is one.
    ///
    /// Of two API keys in two headers, or two query parameters of one name, one server takes the first and another
    /// the last. Whichever were counted here, a client could get the other one accepted upstream, and a fresh bucket
    /// with every request. So refuse such a request. The same goes for two cookies of one name that differ once they
    /// are decoded, and for a cookie that servers read differently, such as one with an unfinished quote.
    ///
    /// ```
    /// use http::{HeaderMap, Uri};
    /// use tollkeeper::http::Identity;
    ///
    /// let identity = Identity::new().identify("api_key", "query.key".parse()?);
    /// assert_eq!(identity.contradiction(&Uri::from_static("/?key=a&key=a"), &HeaderMap::new()), None);
    /// let place = identity.contradiction(&Uri::from_static("/?key=a&k%65y=b"), &HeaderMap::new());
    /// assert_eq!(place.map(ToString::to_string).as_deref(), Some("query.key"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contradiction(&self, uri: &Uri, headers: &HeaderMap) -> Option<&AttributeSource> {
        self.single.iter().find(|place| place.is_contradicted(uri, headers))
    }

    /// The address of the client behind the trusted proxies. `peer` is the socket's address.
    ///
    /// Headers are read only if the peer is a trusted proxy. The hops in `X-Forwarded-For` or `Forwarded` are
    /// followed from the nearest one for as long as they are trusted; the first untrusted one is the client. A hop
    /// that is not an address ends the walk at the last one that was: no trusted proxy wrote what lies beyond.
    ///
    /// When a request carries both headers, a hop counts only if both agree on it. A proxy writes one of them and may
    /// pass the other on as the client sent it, and nothing in the request says which: preferring either would let
    /// clients of half the proxies choose their address. So name the header with [`Identity::address_from`], or have
    /// the proxy remove the other; until then a client that sends it is counted as the proxy.
    ///
    /// A header that holds a single address is trusted as it is, so the proxy has to replace what its clients send in
    /// it.
    ///
    /// ```
    /// use tollkeeper::http::Identity;
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
        self.trusted.client_address(&self.address, headers, peer)
    }

    /// Whether the client's address is read from this header, if a trusted proxy sends it.
    pub fn reads_address_from(&self, header: &HeaderName) -> bool {
        self.address.reads(header)
    }

    /// Whether this peer is a trusted proxy.
    ///
    /// ```
    /// use tollkeeper::http::Identity;
    ///
    /// let identity = Identity::new().trust(["10.0.0.0/8".parse()?]);
    /// assert!(identity.trusts("10.0.0.1".parse()?));
    /// assert!(!identity.trusts("203.0.113.7".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.contain(peer.to_canonical())
    }

    /// The `ip` attribute: the client's address, or its IPv6 network.
    pub(super) fn ip(&self, headers: &HeaderMap, peer: IpAddr) -> String {
        group(self.client_address(headers, peer), self.ipv6_prefix)
    }

    /// Whether an attribute has its place in requests by [`Identity::identify`].
    pub fn maps(&self, attribute: &str) -> bool {
        self.mapped.contains_key(attribute)
    }

    pub(super) fn mapped(&self, attribute: &str) -> Option<&AttributeSource> {
        self.mapped.get(attribute)
    }
}
