//! Warns once in the log about untrusted peers that send forwarding headers: probably a proxy that is missing in
//! `trusted_proxies`, behind which all clients share one address.

use std::net::IpAddr;
use std::sync::Once;

use http::HeaderMap;
use http::header::FORWARDED;
use tollkeeper::http::Identity;
use tracing::warn;

const TELLING: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "x-forwarded-proto"];

/// Checks a request's headers. `for_another` says that it describes another client's request in any case.
pub(super) fn watch(identity: &Identity, headers: &HeaderMap, peer: IpAddr, for_another: bool) {
    static STRANGER: Once = Once::new();
    static CONTRADICTION: Once = Once::new();
    if identity.trusts(peer) {
        if !CONTRADICTION.is_completed() && contradict(identity, headers, peer) {
            CONTRADICTION.call_once(|| {
                warn!(
                    "{peer} sends Forwarded and X-Forwarded-For, and they differ, so `ip` is its own address for such \
                     requests; say which one it writes with client_address"
                );
            });
        }
        return;
    }
    let read = |name: &http::HeaderName| identity.reads_address_from(name);
    if !STRANGER.is_completed()
        && (for_another || TELLING.iter().any(|name| headers.contains_key(*name)) || headers.keys().any(read))
    {
        STRANGER.call_once(|| {
            warn!(
                "{peer} forwards requests of others and is not in trusted_proxies, so `ip` is its own address for all of \
                 them; add it if it is your proxy"
            );
        });
    }
}

/// Whether both headers are read and do not agree on any hop.
fn contradict(identity: &Identity, headers: &HeaderMap, peer: IpAddr) -> bool {
    let both = headers.contains_key(FORWARDED) && headers.contains_key("x-forwarded-for");
    both && identity.reads_address_from(&FORWARDED)
        && identity.reads_address_from(&http::HeaderName::from_static("x-forwarded-for"))
        && identity.client_address(headers, peer) == peer.to_canonical()
}
