//! Warns once in the log about untrusted peers that send forwarding headers: probably a proxy that is missing in
//! `trusted_proxies`, behind which all clients share one address.

use std::net::IpAddr;
use std::sync::Once;

use http::HeaderMap;
use tollkeeper::http::{ForwardingIssue, Identity};
use tracing::warn;

/// Checks a request's headers. `for_another` says that it describes another client's request in any case.
pub(super) fn watch(identity: &Identity, headers: &HeaderMap, peer: IpAddr, for_another: bool) {
    static UNTRUSTED: Once = Once::new();
    static CONTRADICTION: Once = Once::new();
    let once = if identity.trusts(peer) { &CONTRADICTION } else { &UNTRUSTED };
    if once.is_completed() {
        return;
    }
    let issue = match identity.forwarding_issue(headers, peer) {
        None if for_another && !identity.trusts(peer) => Some(ForwardingIssue::Untrusted { peer }),
        issue => issue,
    };
    if let Some(issue) = issue {
        once.call_once(|| warn!("{issue}"));
    }
}
