//! The attributes of an HTTP request, looked up when a rule asks for them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::OnceLock;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Method, Uri};
use tollkeeper_core::Request;

use super::identity::Identity;
use super::places::{cookie, header, query};
use super::source::AttributeSource;

/// The head of an HTTP request as rules see it; made by [`Identity::describe`].
///
/// | attribute | what it is |
/// |---|---|
/// | `ip` | the client's address, IPv6 as a network such as `2001:db8:1:2::/64` |
/// | `method` | as in the request line |
/// | `path` | in its normal spelling: `/%6Cogin`, `//login`, `/x/../login` and `/login;v=1` are `/login` |
/// | `host` | of the target, else of the `Host` header: lower case, without port and final dot |
/// | `header.NAME` | lines joined with `, ` unless all say the same; absent when it is not UTF-8; `Authorization` in its usual spelling, `Bearer abc`, base64 included |
/// | `query.NAME` | percent-decoded, `+` is a space; the first of this name |
/// | `cookie.NAME` | percent-decoded, without the quotes around it; the first of this name |
///
/// ```
/// use http::{HeaderMap, Method, Uri};
/// use tollkeeper::{Request, http::Identity};
///
/// let (method, uri, headers) = (Method::GET, Uri::from_static("/search?q=rust+lang"), HeaderMap::new());
/// let identity = Identity::new();
/// let request = identity.describe(&method, &uri, &headers, "2001:db8:1:2::17".parse().ok()).with_cost(3);
/// assert_eq!(request.attribute("query.q").as_deref(), Some("rust lang"));
/// assert_eq!(request.attribute("ip").as_deref(), Some("2001:db8:1:2::/64"));
/// assert_eq!(request.cost(), 3);
/// ```
#[derive(Debug)]
pub struct HttpRequest<'r> {
    identity: &'r Identity,
    method: &'r Method,
    uri: &'r Uri,
    headers: &'r HeaderMap,
    peer: Option<IpAddr>,
    cost: u32,
    /// Cached: many rules use it, and finding it takes a walk through headers.
    ip: OnceLock<Option<String>>,
}

impl<'r> HttpRequest<'r> {
    fn new(
        identity: &'r Identity,
        method: &'r Method,
        uri: &'r Uri,
        headers: &'r HeaderMap,
        peer: Option<IpAddr>,
    ) -> Self {
        HttpRequest { identity, method, uri, headers, peer, cost: 1, ip: OnceLock::new() }
    }

    /// The same request at another cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    fn ip(&self) -> Option<&str> {
        self.ip.get_or_init(|| self.peer.map(|peer| self.identity.ip(self.headers, peer))).as_deref()
    }

    fn mapped(&self, source: &AttributeSource) -> Option<Cow<'_, str>> {
        match source {
            AttributeSource::Header(name) => header(self.headers, name),
            AttributeSource::Query(name) => query(self.uri, name),
            AttributeSource::Cookie(name) => cookie(self.headers, name),
            AttributeSource::Attribute(name) => self.own(name),
        }
    }

    /// What every HTTP request has, whatever is mapped.
    fn own(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "ip" => self.ip().map(Cow::Borrowed),
            "method" => Some(Cow::Borrowed(self.method.as_str())),
            "path" => Some(normal_path(self.uri.path())),
            "host" => host(self.uri, self.headers),
            // One prefix after the other: quicker than to search for the dot.
            _ => {
                if let Some(name) = name.strip_prefix("header.") {
                    header(self.headers, name)
                } else if let Some(name) = name.strip_prefix("query.") {
                    query(self.uri, name)
                } else {
                    cookie(self.headers, name.strip_prefix("cookie.")?)
                }
            }
        }
    }
}

impl Identity {
    /// A request as rules see it. `peer` is the socket's address; without it there is no `ip`. An attribute is looked
    /// up only when a rule needs it.
    pub fn describe<'r>(
        &'r self,
        method: &'r Method,
        uri: &'r Uri,
        headers: &'r HeaderMap,
        peer: Option<IpAddr>,
    ) -> HttpRequest<'r> {
        HttpRequest::new(self, method, uri, headers, peer)
    }
}

impl Request for HttpRequest<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.identity.mapped(name) {
            Some(source) => self.mapped(source),
            None => self.own(name),
        }
    }

    fn cost(&self) -> u32 {
        self.cost
    }
}

/// The `path` attribute of a path as it was sent. Upstream servers decode letters, merge slashes, resolve dots and drop parameters (`/login;v=1`,
/// RFC 3986 3.3), so a rule for `/login` must not be bypassed by another spelling. Escapes with a meaning of their
/// own (`%2F`) stay.
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if !is_odd(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_in_folder = false;
    for segment in decoded.split('/').skip(1) {
        // Before dots are resolved: `/x/..;v=1/login` is `/login` to servers that drop parameters.
        let segment = segment.split_once(';').map_or(segment, |(name, _)| name);
        ends_in_folder = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    let folder = if ends_in_folder && !segments.is_empty() { "/" } else { "" };
    Cow::Owned(format!("/{}{folder}", segments.join("/")))
}

/// Whether a path may have another spelling: it has an escape, a parameter, or a slash or a dot after a slash. Every request asks, so eight
/// bytes are looked at together (Warren, *Hacker's Delight*: zero bytes of a word).
fn is_odd(path: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // The highest bit of each byte that is zero, and of no other.
    let zeros = |word: u64| !(((word & (ONES * 0x7f)) + ONES * 0x7f) | word | (ONES * 0x7f));
    let has_odd = |eight: &[u8; 8]| {
        let word = u64::from_le_bytes(*eight);
        let equal = |byte: u8| zeros(word ^ (ONES * u64::from(byte)));
        // A dot and a slash differ in their lowest bit.
        let dots_and_slashes = zeros((word | ONES) ^ (ONES * u64::from(b'/')));
        (equal(b'/') << 8) & dots_and_slashes | equal(b'%') | equal(b';') != 0
    };
    // Words overlap by a byte, so that no pair of bytes is cut in two.
    let mut rest = path;
    while let Some(eight) = rest.first_chunk::<8>() {
        if has_odd(eight) {
            return true;
        }
        rest = &rest[7..];
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    has_odd(&last)
}

/// Decodes characters that never need encoding (RFC 3986 2.3), and writes the remaining escapes in upper case.
fn decode_unreserved(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let escape = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escape {
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') => {
                out.push(char::from(byte));
                rest = &rest[at + 3..];
            }
            Some(byte) => {
                out.push_str(&format!("%{byte:02X}"));
                rest = &rest[at + 3..];
            }
            None => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The host in the request target overrides the `Host` header (RFC 9112 3.2.2, RFC 9113 8.3.1).
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<Cow<'r, str>> {
    if let Some(host) = uri.host() {
        return Some(normal_host(Cow::Borrowed(host)));
    }
    let authority = Authority::try_from(headers.get(HOST)?.as_bytes()).ok()?;
    Some(normal_host(Cow::Owned(authority.host().to_string())))
}

/// The `host` attribute of a host as it was sent: however a client spells it, it is one host.
pub fn normal_host(host: Cow<'_, str>) -> Cow<'_, str> {
    if !host.ends_with('.') && !host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return host;
    }
    Cow::Owned(host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
