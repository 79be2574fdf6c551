//! What an operator should know, and a host reports once: a proxy that is missing in `trusted_proxies`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

use http::HeaderName;
use tollkeeper::http::{ForwardingIssue, Identity};

use crate::request::Head;

static FORWARDING: LazyLock<Vec<HeaderName>> = LazyLock::new(|| Identity::forwarding_headers().collect());

/// After this many requests only one in so many is looked at: a proxy that is missing sends all of them.
const SAMPLE: u32 = 64;

/// Looks for forwarding headers that are not used.
#[derive(Default)]
pub(crate) struct Watch {
    requests: AtomicU32,
    is_untrusted_seen: AtomicBool,
    is_contradiction_seen: AtomicBool,
    is_waiting: AtomicBool,
    waiting: Mutex<Vec<String>>,
}

impl Watch {
    /// The headers to pass beside those that rules need, for a request that is looked at.
    pub(crate) fn all_headers(&self) -> &'static [HeaderName] {
        if self.is_untrusted_seen.load(Relaxed) { &[] } else { &FORWARDING }
    }

    /// The headers to pass beside those that rules need, for the next request.
    pub(crate) fn headers(&self) -> &'static [HeaderName] {
        if self.is_untrusted_seen.load(Relaxed) {
            return &[];
        }
        let request = self.requests.fetch_add(1, Relaxed);
        if request < SAMPLE || request.is_multiple_of(SAMPLE) { &FORWARDING } else { &[] }
    }

    /// Looks at a request.
    pub(crate) fn look(&self, identity: &Identity, head: &Head) {
        let Some(peer) = head.peer else { return };
        if head.headers.is_empty() || is_of_server(head, peer) {
            return;
        }
        let Some(issue) = identity.forwarding_issue(&head.headers, peer) else { return };
        let is_seen = match issue {
            ForwardingIssue::Untrusted { .. } => &self.is_untrusted_seen,
            _ => &self.is_contradiction_seen,
        };
        if !is_seen.swap(true, Relaxed) {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(issue.to_string());
            self.is_waiting.store(true, Relaxed);
        }
    }

    /// The next text to report.
    pub(crate) fn take(&self) -> Option<String> {
        if !self.is_waiting.load(Relaxed) {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = waiting.pop();
        self.is_waiting.store(!waiting.is_empty(), Relaxed);
        next
    }
}

/// Whether the server in front of the host has read the headers itself, as uvicorn does: then the peer is an address in them.
fn is_of_server(head: &Head, peer: IpAddr) -> bool {
    let names = |text: &str| {
        let mut hops = text.split([',', ';', '=', ' ', '"', '[', ']']).map(str::trim);
        hops.any(|hop| hop.parse::<IpAddr>().is_ok_and(|address| address.to_canonical() == peer.to_canonical()))
    };
    let values = FORWARDING.iter().flat_map(|name| head.headers.get_all(name));
    values.into_iter().any(|value| value.to_str().is_ok_and(names))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn head(peer: &str, forwarded_for: &str) -> Head {
        let mut head = Head::new(Some(peer.parse().unwrap()));
        head.add_header(HeaderName::from_static("x-forwarded-for"), forwarded_for.as_bytes());
        head
    }

    #[test]
    fn an_untrusted_proxy_is_reported_once() {
        let (watch, identity) = (Watch::default(), Identity::new());
        assert!(!watch.headers().is_empty());
        watch.look(&identity, &head("10.0.0.1", "203.0.113.7"));
        watch.look(&identity, &head("10.0.0.2", "203.0.113.8"));
        assert!(watch.take().unwrap().starts_with("10.0.0.1 sends forwarding headers"));
        assert_eq!(watch.take(), None);
        assert!(watch.headers().is_empty(), "nothing is left to look for");
    }

    #[test]
    fn a_server_that_has_read_the_headers_is_not_a_proxy() {
        let (watch, identity) = (Watch::default(), Identity::new());
        watch.look(&identity, &head("203.0.113.7", "203.0.113.7, 10.0.0.1"));
        assert_eq!(watch.take(), None);
    }

    #[test]
    fn most_requests_are_not_looked_at() {
        let watch = Watch::default();
        let looked_at = (0..SAMPLE * 10).filter(|_| !watch.headers().is_empty()).count();
        assert_eq!(looked_at, SAMPLE as usize + 9);
    }
}
