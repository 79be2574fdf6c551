//! Proxies that are missing in the configuration, noticed by the headers that they send.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use super::identity::Identity;

/// Headers that proxies add to the requests they forward.
const FORWARDING: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "x-forwarded-proto"];

/// Why the forwarding headers of a request are not used. Its text is for a log, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardingIssue {
    /// The peer is not a trusted proxy. If it is a proxy, all clients behind it share one address.
    #[error(
        "{peer} sends forwarding headers but is not in trusted_proxies, so `ip` is its own address for all of its \
         requests; add it if it is your proxy"
    )]
    Untrusted {
        /// Who sent the request.
        peer: IpAddr,
    },
    /// The peer is trusted, and sends two headers that contradict each other.
    #[error(
        "{peer} sends Forwarded and X-Forwarded-For, and they differ, so `ip` is its own address for such requests; set \
         client_address to the one that it writes"
    )]
    Contradiction {
        /// Who sent the request.
        peer: IpAddr,
    },
}

impl Identity {
    /// Why the forwarding headers of a request are not used, if it has any.
    ///
    /// ```
    /// use tollkeeper::http::Identity;
    ///
    /// let mut headers = http::HeaderMap::new();
    /// headers.insert("x-forwarded-for", "203.0.113.7".parse()?);
    /// let issue = Identity::new().forwarding_issue(&headers, "10.0.0.1".parse()?);
    /// assert!(issue.unwrap().to_string().starts_with("10.0.0.1 sends forwarding headers"));
    ///
    /// let identity = Identity::new().trust(["10.0.0.0/8".parse()?]);
    /// assert_eq!(identity.forwarding_issue(&headers, "10.0.0.1".parse()?), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forwarding_issue(&self, headers: &HeaderMap, peer: IpAddr) -> Option<ForwardingIssue> {
        if self.trusts(peer) {
            return self.contradict(headers, peer).then_some(ForwardingIssue::Contradiction { peer });
        }
        // Most requests have few headers: looking at each is quicker than looking for all of these.
        let is_forwarded =
            headers.keys().any(|name| FORWARDING.contains(&name.as_str()) || self.reads_address_from(name));
        is_forwarded.then_some(ForwardingIssue::Untrusted { peer })
    }

    /// The headers by which [`Identity::forwarding_issue`] recognises a proxy.
    pub fn forwarding_headers() -> impl Iterator<Item = HeaderName> {
        FORWARDING.into_iter().map(HeaderName::from_static)
    }

    /// Whether both headers are read and do not agree on any hop.
    fn contradict(&self, headers: &HeaderMap, peer: IpAddr) -> bool {
        let x_forwarded_for = HeaderName::from_static("x-forwarded-for");
        headers.contains_key(FORWARDED)
            && headers.contains_key(&x_forwarded_for)
            && self.reads_address_from(&FORWARDED)
            && self.reads_address_from(&x_forwarded_for)
            && self.client_address(headers, peer) == peer.to_canonical()
    }
}
