//! The host and the path of a request, each given in exactly one way.

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, StatusCode, Version};

use tollkeeper::http::Problem;

use crate::strict::quoted;

/// Where a request goes, as the client wrote it.
#[derive(Debug)]
pub(super) struct Target {
    /// The one host that it names; an HTTP/1.0 request may have none.
    pub(super) host: Option<HeaderValue>,
    pub(super) path: PathAndQuery,
}

impl Target {
    /// Refuses requests that name two hosts, or none, or that are not addressed to a server.
    pub(super) fn of(parts: &Parts) -> Result<Target, Problem> {
        if parts.method == Method::CONNECT {
            let detail = "CONNECT is not supported: this proxy forwards to one server; send the request itself";
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail));
        }
        if parts.method == Method::TRACE {
            let detail = "TRACE would reveal headers added on the way and is not forwarded; use another method";
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail).closing());
        }
        let path = match parts.uri.path_and_query() {
            Some(path) if path.as_str().starts_with('/') => path.clone(),
            // The absolute form without a path.
            _ if parts.uri.authority().is_some() && parts.uri.path() == "/" => PathAndQuery::from_static("/"),
            _ => return Err(bad(format!("{} is not a path; start it with a slash", quoted(&parts.uri.to_string())))),
        };
        // HTTP/2 allows them, but HTTP/1 parsers disagree about them.
        if !path.as_str().bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
            return Err(bad("the path contains characters beyond ASCII; percent-encode them"));
        }
        Ok(Target { host: host(parts)?, path })
    }
}

fn host(parts: &Parts) -> Result<Option<HeaderValue>, Problem> {
    let mut lines = parts.headers.get_all(HOST).into_iter();
    let host = lines.next();
    if lines.next().is_some() {
        return Err(bad("there are several Host headers; send one"));
    }
    // Most requests name their host like this, and it need not be parsed.
    if let (None, Some(host)) = (parts.uri.authority(), host)
        && is_plain(host.as_bytes())
    {
        return Ok(Some(host.clone()));
    }
    let named = match host {
        Some(host) => Some(authority(host).ok_or_else(|| {
            let host = quoted(&String::from_utf8_lossy(host.as_bytes()));
            bad(format!("Host: {host} is not a host; write a name or an address, and a port if it has one"))
        })?),
        None => None,
    };
    match (parts.uri.authority(), named) {
        (Some(target), Some(named)) if *target != named => {
            let detail =
                format!("the target names {} but Host names {}", quoted(target.as_str()), quoted(named.as_str()));
            Err(bad(detail))
        }
        (Some(target), _) if target.as_str().contains('@') => {
            Err(bad("a request target must not contain a user; remove what is before the @"))
        }
        (Some(target), _) => HeaderValue::from_str(target.as_str()).map(Some).map_err(|error| bad(error.to_string())),
        (None, None) if parts.version == Version::HTTP_11 => Err(bad("there is no Host header; HTTP/1.1 requires one")),
        (None, _) => Ok(host.cloned()),
    }
}

/// Whether it is a name or an address in lower case, and perhaps a port.
fn is_plain(host: &[u8]) -> bool {
    let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
    let (name, port) = (&host[..end], host.get(end + 1..));
    let is_name = !name.is_empty() && name.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'));
    is_name && port.is_none_or(|port| matches!(port.len(), 1..=5) && port.iter().all(u8::is_ascii_digit))
}

/// A host with or without a port, and nothing else.
fn authority(host: &HeaderValue) -> Option<Authority> {
    let text = host.to_str().ok()?;
    text.parse().ok().filter(|_| !text.contains('@'))
}

/// A 400 that closes the connection.
fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail).closing()
}
