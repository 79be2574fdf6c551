//! Changes headers on the way: hop-by-hop headers are removed, and forwarding headers are added.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, Entry, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use tollkeeper::http::Identity;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Servers that pass headers on as variables read it as `HTTP_PROXY`, which programs use as the proxy for their own
/// requests (httpoxy). No client has a reason to send it.
const PROXY: HeaderName = HeaderName::from_static("proxy");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers beside `Forwarded` and `X-Forwarded-*` with which a client could lie to a server about the origin or the
/// path of a request. Some servers take a path from them, which no rule has seen.
const CLAIMS: [&str; 37] = [
    "x-real-ip",
    "client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-originating-ip",
    "x-host",
    "x-forwarded",
    "forwarded-for",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-appengine-user-ip",
    "x-appengine-remote-addr",
    "x-envoy-external-address",
    "x-vercel-forwarded-for",
    "x-nf-client-connection-ip",
    "x-sucuri-clientip",
    "incap-client-ip",
    "ali-cdn-real-ip",
    "cdn-src-ip",
    "proxy-client-ip",
    "wl-proxy-client-ip",
    "x-http-host-override",
    "x-url-scheme",
    "front-end-https",
    "x-original-forwarded-for",
    "x-original-url",
    "x-original-uri",
    "x-original-method",
    "x-rewrite-url",
];

/// Headers for one connection, and `Proxy`.
static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What a message asks of this connection alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hop {
    /// An upgrade to WebSocket.
    pub(super) websocket: bool,
    /// Trailers are accepted.
    pub(super) trailers: bool,
}

/// Removes the hop-by-hop headers, including those that `Connection` names, and returns what they asked for.
///
/// Upgrades other than WebSocket are dropped, as a server may: `h2c` would carry requests past the limiter.
pub(super) fn take_hop(headers: &mut HeaderMap) -> Hop {
    // Most messages have none, and looking through their few headers is quicker than looking for each of these.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return Hop::default();
    }
    let named: Vec<HeaderName> =
        tokens(headers, CONNECTION).filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect();
    let hop = Hop {
        websocket: wants_websocket(headers),
        trailers: tokens(headers, TE).any(|coding| coding.eq_ignore_ascii_case("trailers")),
    };
    for name in named {
        // `Host` and `Content-Length` are end-to-end, even if `Connection` names them.
        if name != HOST && name != CONTENT_LENGTH {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    hop
}

/// Whether a message asks for, or accepts, an upgrade to WebSocket.
pub(super) fn wants_websocket(headers: &HeaderMap) -> bool {
    tokens(headers, CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
        && tokens(headers, UPGRADE).any(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// Asks the next connection for what was asked of the previous one.
pub(super) fn put_hop(headers: &mut HeaderMap, hop: Hop) {
    if hop.websocket {
        headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    if hop.trailers {
        headers.append(CONNECTION, HeaderValue::from_static("te"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Adds `Via`, with the protocol by which the message was received.
pub(super) fn add_via(headers: &mut HeaderMap, received: Version) {
    let via = match received {
        Version::HTTP_10 => "1.0 tollkeeper",
        Version::HTTP_2 => "2 tollkeeper",
        _ => "1.1 tollkeeper",
    };
    headers.append(VIA, HeaderValue::from_static(via));
}

/// The other end of a client's connection, as forwarding headers name it.
#[derive(Debug)]
pub(super) struct Origin {
    peer: IpAddr,
    /// Written once, and not for every request.
    name: HeaderValue,
    scheme: HeaderValue,
}

impl Origin {
    pub(super) fn new(peer: IpAddr, scheme: &Scheme) -> Origin {
        let peer = peer.to_canonical();
        Origin { peer, name: value(peer.to_string()), scheme: value(scheme.to_string()) }
    }
}

/// Adds the forwarding headers: appended to those of trusted proxies, in place of those of any other client.
pub(super) fn add_forwarded(headers: &mut HeaderMap, identity: &Identity, origin: &Origin, host: &HeaderValue) {
    let peer = origin.peer;
    if !identity.trusts(peer) {
        remove(headers, |name| is_claim(name) || identity.reads_address_from(name));
    }
    let client = identity.client_address(headers, peer);
    // A header that the proxies in front are known not to write was sent by their client.
    remove(headers, |name| (*name == FORWARDED || *name == X_FORWARDED_FOR) && !identity.reads_address_from(name));
    // If the hops are only in `Forwarded`, they are continued in both headers.
    if client != peer && !headers.contains_key(X_FORWARDED_FOR) {
        headers.insert(X_FORWARDED_FOR, value(client.to_string()));
    }
    append_hop(headers, X_FORWARDED_FOR, origin.name.clone());
    if headers.contains_key(FORWARDED) {
        let node = if peer.is_ipv6() { format!("for=\"[{peer}]\"") } else { format!("for={peer}") };
        append_hop(headers, FORWARDED, value(node));
    }
    headers.entry(X_FORWARDED_PROTO).or_insert_with(|| origin.scheme.clone());
    headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
}

/// Whether a header claims where a request came from and how; only a trusted proxy knows.
fn is_claim(name: &HeaderName) -> bool {
    *name == FORWARDED || name.as_str().starts_with("x-forwarded-") || CLAIMS.contains(&name.as_str())
}

/// Removes headers with an underscore in their name. Servers that pass headers on as variables (CGI, WSGI, Rack, PHP)
/// read `x_api_key` as `X-Api-Key`, so a client could send them what no rule has seen.
pub(super) fn take_lookalikes(headers: &mut HeaderMap) {
    remove(headers, |name| name.as_str().contains('_'));
}

/// Joins several `Cookie` lines, as HTTP/2 splits them (RFC 9113 8.2.3), into one: an HTTP/1 server may read only one of
/// several lines, and not the one that the rules read.
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).into_iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    // Joined from valid values.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

fn remove(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Joins several lines into one list, so that servers that read only the first line see all of it.
fn append_hop(headers: &mut HeaderMap, name: HeaderName, hop: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(vacant) => _ = vacant.insert(hop),
        Entry::Occupied(mut lines) => {
            let mut list: Vec<u8> = Vec::new();
            for line in lines.iter() {
                list.extend_from_slice(line.as_bytes());
                list.extend_from_slice(b", ");
            }
            list.extend_from_slice(hop.as_bytes());
            // Joined from valid values.
            if let Ok(list) = HeaderValue::from_bytes(&list) {
                lines.insert(list);
            }
        }
    }
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("addresses and schemes are plain text")
}

#[cfg(test)]
mod tests;
