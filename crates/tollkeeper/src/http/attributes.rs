//! The attributes of an HTTP request, looked up when a rule asks for them.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::OnceLock;

use http::header::{COOKIE, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Uri};
use percent_encoding::percent_decode_str;
use tollkeeper_core::Request;

use super::identity::Identity;

/// Where an attribute comes from.
///
/// ```
/// use tollkeeper::http::AttributeSource;
///
/// assert_eq!("cookie.sid".parse(), Ok(AttributeSource::Cookie("sid".into())));
/// let error = "headers.x-user".parse::<AttributeSource>().unwrap_err();
/// assert!(error.to_string().contains("header.NAME"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    /// A header; several lines that differ are joined with `, `.
    Header(HeaderName),
    /// The first query parameter of this name.
    Query(String),
    /// The first cookie of this name.
    Cookie(String),
    /// One of `ip`, `method`, `path` and `host`.
    Attribute(String),
}

/// A text that names no place in a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in a request; write header.NAME, query.NAME, cookie.NAME, ip, method, path or host")]
pub struct AttributeSourceError(String);

impl FromStr for AttributeSource {
    type Err = AttributeSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let source = match text.split_once('.') {
            Some((_, "")) => None,
            Some(("header", name)) => name.parse().ok().map(AttributeSource::Header),
            Some(("query", name)) => Some(AttributeSource::Query(name.into())),
            Some(("cookie", name)) => Some(AttributeSource::Cookie(name.into())),
            None if matches!(text, "ip" | "method" | "path" | "host") => Some(AttributeSource::Attribute(text.into())),
            _ => None,
        };
        source.ok_or_else(|| AttributeSourceError(text.into()))
    }
}

impl fmt::Display for AttributeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeSource::Header(name) => write!(f, "header.{name}"),
            AttributeSource::Query(name) => write!(f, "query.{name}"),
            AttributeSource::Cookie(name) => write!(f, "cookie.{name}"),
            AttributeSource::Attribute(name) => f.write_str(name),
        }
    }
}

impl AttributeSource {
    /// Whether a request says this more than once, and not the same.
    pub(super) fn is_contradicted(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        match self {
            AttributeSource::Header(name) => differ(headers.get_all(name).into_iter()),
            AttributeSource::Query(name) => differ(queries(uri, name)),
            AttributeSource::Cookie(_) | AttributeSource::Attribute(_) => false,
        }
    }
}

fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    values.next().is_some_and(|first| values.any(|other| other != first))
}

/// The head of an HTTP request as rules see it; made by [`Identity::describe`].
///
/// | attribute | what it is |
/// |---|---|
/// | `ip` | the client's address, IPv6 as a network such as `2001:db8:1:2::/64` |
/// | `method` | as in the request line |
/// | `path` | in its normal spelling: `/%6Cogin`, `//login`, `/x/../login` and `/login;v=1` are `/login` |
/// | `host` | of the target, else of the `Host` header: lower case, without port and final dot |
/// | `header.NAME` | lines joined with `, ` unless all say the same; absent when it is not UTF-8 |
/// | `query.NAME` | percent-decoded, `+` is a space; the first of this name |
/// | `cookie.NAME` | without the quotes around it, if any; the first of this name |
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
    /// Many rules ask for it, and it takes a walk to find out.
    ip: OnceLock<Option<String>>,
}

impl<'r> HttpRequest<'r> {
    pub(super) fn new(
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
            AttributeSource::Header(name) => header(self.headers, name.as_str()),
            AttributeSource::Query(name) => query(self.uri, name),
            AttributeSource::Cookie(name) => cookie(self.headers, name).map(Cow::Borrowed),
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
            _ => match name.split_once('.')? {
                ("header", name) => header(self.headers, name),
                ("query", name) => query(self.uri, name),
                ("cookie", name) => cookie(self.headers, name).map(Cow::Borrowed),
                _ => None,
            },
        }
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

/// However a client spells a path, it is one path: servers behind decode letters, merge slashes, resolve dots and drop
/// parameters (`/login;v=1`, RFC 3986 3.3), so a rule for `/login` must not be stepped around by another spelling. What
/// has a meaning of its own (`%2F`) stays.
fn normal_path(path: &str) -> Cow<'_, str> {
    let is_odd = path.contains(['%', ';']) || path.contains("//") || path.contains("/.");
    if !is_odd {
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_in_folder = false;
    for segment in decoded.split('/').skip(1) {
        // Before dots are resolved: `/x/..;v=1/login` is `/login` to those who drop parameters.
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

/// Decodes what never needed encoding (RFC 3986 2.3), and writes the rest of the escapes in capitals.
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

/// A request target that names its host overrules the `Host` header (RFC 9112 3.2.2, RFC 9113 8.3.1).
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<Cow<'r, str>> {
    if let Some(host) = uri.host() {
        return Some(normal_host(Cow::Borrowed(host)));
    }
    let authority = Authority::try_from(headers.get(HOST)?.as_bytes()).ok()?;
    Some(normal_host(Cow::Owned(authority.host().to_string())))
}

/// However a client spells a host, it is one host.
fn normal_host(host: Cow<'_, str>) -> Cow<'_, str> {
    if !host.ends_with('.') && !host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return host;
    }
    Cow::Owned(host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase())
}

fn header<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
    let mut lines = headers.get_all(name).into_iter().map(|line| std::str::from_utf8(line.as_bytes()));
    let first = lines.next()?.ok()?;
    let mut joined = Cow::Borrowed(first);
    // Who says the same three times is not three clients.
    if !differ(headers.get_all(name).into_iter()) {
        return Some(joined);
    }
    for line in lines {
        let joined = joined.to_mut();
        joined.push_str(", ");
        joined.push_str(line.ok()?);
    }
    Some(joined)
}

fn query<'r>(uri: &'r Uri, name: &str) -> Option<Cow<'r, str>> {
    queries(uri, name).next()?
}

/// All parameters of this name; `None` is one whose bytes are no text.
fn queries<'r>(uri: &'r Uri, name: &str) -> impl Iterator<Item = Option<Cow<'r, str>>> {
    let pairs = uri.query().unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(encoded, _)| decoded(encoded).as_deref() == Some(name)).map(|(_, value)| decoded(value))
}

/// `None` when the bytes are no text.
fn decoded(encoded: &str) -> Option<Cow<'_, str>> {
    if !encoded.contains('+') {
        return percent_decode_str(encoded).decode_utf8().ok();
    }
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
}

fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(found, _)| found.trim() == name)?;
    let value = value.trim();
    // Servers drop the quotes that RFC 6265 allows, so with and without them it is the same session.
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

#[cfg(test)]
mod tests;
