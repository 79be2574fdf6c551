//! Forward auth: decisions for proxies, about requests that they describe in headers (nginx, Traefik, Caddy, APISIX,
//! HAProxy) or pass on under a path prefix (Envoy).

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use http::header::{CACHE_CONTROL, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use tollkeeper::CheckError;
use tollkeeper::http::{Answer, OVER_LIMIT, Problem, over_limit};

use super::check::undecided;
use super::problem::Refused;
use super::shared::Shared;
use crate::front::certified::Certified;
use crate::front::connections::Peer;
use crate::front::forwarding;
use crate::front::plain::cleared;
use crate::metrics::Front;
use crate::strict::quoted;

const PREFIX: &str = "/v1/authorize";
static METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
static URIS: [HeaderName; 2] = [HeaderName::from_static("x-forwarded-uri"), HeaderName::from_static("x-original-uri")];
static HOST_HEADER: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Milliseconds until the turn of a request that a leaky bucket paces.
const DELAY: HeaderName = HeaderName::from_static("tollkeeper-delay-ms");

/// `ANY /v1/authorize`: 200, or the denial for the proxy to pass on. The body is never read.
pub(super) async fn authorize(
    State(shared): State<Arc<Shared>>,
    peer: Option<Extension<Peer>>,
    request: Request<Body>,
) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    let peer = peer.map(|Extension(peer)| peer);
    Ok(decide(&shared, peer.as_ref(), parts).await?.map(Body::new))
}

/// The answer to a head, with the peer that sent it.
pub(super) async fn decide(
    shared: &Shared,
    peer: Option<&Peer>,
    parts: Parts,
) -> Result<http::Response<Full<Bytes>>, Refused> {
    let service = &shared.service;
    let original = Original::of(parts).inspect_err(|_| shared.refused(1))?;
    let (ip, certified) = peer.map(|Peer { ip, certified }| (*ip, certified.clone())).unzip();
    if let Some(ip) = ip {
        forwarding::watch(&service.identity, &original.headers, ip, original.is_described);
    }
    if let Some(place) = service.contradiction(&original.uri, &original.headers) {
        shared.refused(1);
        return Ok(Answer::contradiction(&place).into_response());
    }
    let described = service.identity.describe(&original.method, &original.uri, &original.headers, ip);
    let described = Certified { request: described, client: certified.flatten() };
    let verdict = match service.check(Front::Http, &described).await {
        Ok(verdict) => verdict,
        Err(CheckError::Cost(error)) => return Ok(Answer::bad_cost(&error).into_response()),
        Err(error) => return Err(undecided(&error).into()),
    };
    let now = service.limiter.store().now();
    if !verdict.is_allowed() {
        return Ok(service.answer.deny(&verdict, now).into_response());
    }
    // Exactly 200, which Envoy requires, and no body: nginx closes the connection when there is one.
    let mut response = http::Response::new(Full::default());
    // In the room of the request's, which is not needed any more.
    *response.headers_mut() = cleared(original.headers);
    let headers = response.headers_mut();
    service.answer.set_headers(headers, &verdict, now);
    // For the proxy to pass on to its upstream.
    headers.extend(over_limit(&verdict).map(|value| (OVER_LIMIT, value)));
    let delay_ms = Some(verdict.delay().as_millis_ceil()).filter(|delay| *delay > 0);
    headers.extend(delay_ms.map(|delay| (DELAY, HeaderValue::from(delay))));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The client's request, which the proxy asks about.
struct Original {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    /// Whether it differs from the request that was received: a proxy has described it.
    is_described: bool,
}

impl Original {
    fn of(parts: Parts) -> Result<Original, Problem> {
        let Parts { method, uri, mut headers, .. } = parts;
        let below = uri.path().strip_prefix(PREFIX).unwrap_or_default();
        // The proxy put a path below the prefix, so it overrides headers that a client could have sent through it.
        // The bare prefix with a slash may also be just another spelling of this endpoint.
        if !below.is_empty() && (below != "/" || first(&headers, &URIS).is_none()) {
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            let path = format!("{below}{query}");
            let uri = with_path(uri, "path", path.as_bytes())?;
            return Ok(Original { method, uri, headers, is_described: true });
        }
        // Looking through a few headers is quicker than looking for each of these.
        let describes = |name: &HeaderName| METHODS.contains(name) || URIS.contains(name) || *name == HOST_HEADER;
        if !headers.keys().any(describes) {
            return Ok(Original { method, uri, headers, is_described: false });
        }
        for names in [&METHODS, &URIS] {
            agree(&headers, names)?;
        }
        let method = match first(&headers, &METHODS) {
            Some((name, value)) => Method::from_bytes(value.as_bytes()).map_err(|_| {
                Problem::invalid(name, format!("{} is not a method; use one such as GET", shown(value.as_bytes())))
            })?,
            None => method,
        };
        let uri = match first(&headers, &URIS) {
            Some((name, value)) => with_path(uri, name, value.as_bytes())?,
            None => uri,
        };
        let Some(host) = forwarded_host(&headers) else {
            let is_described = first(&headers, &URIS).is_some();
            return Ok(Original { method, uri, headers, is_described });
        };
        headers.insert(HOST, host);
        // The target must not override it.
        let uri = uri.path_and_query().cloned().map_or(uri, Uri::from);
        Ok(Original { method, uri, headers, is_described: true })
    }
}

/// A proxy writes one of these headers and may pass on another, or another line of the same, as its client sent it.
/// Nothing says which is which, so two that differ are refused: otherwise a client could be judged by another path or
/// method than it uses.
fn agree(headers: &HeaderMap, names: &'static [HeaderName; 2]) -> Result<(), Problem> {
    let lines = |name: &'static HeaderName| headers.get_all(name).into_iter().map(move |value| (name.as_str(), value));
    let mut said = names.iter().flat_map(lines).filter(|(_, value)| !value.is_empty());
    let Some((first, one)) = said.next() else { return Ok(()) };
    let Some((name, other)) = said.find(|(_, other)| *other != one) else { return Ok(()) };
    let (one, other) = (shown(one.as_bytes()), shown(other.as_bytes()));
    Err(Problem::invalid(first, format!("says {one} but {name} says {other}; let the proxy send one of them")))
}

/// The host that the nearest proxy names. It adds to what its client sent, which may be anything, so the last one counts.
fn forwarded_host(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines = headers.get_all(&HOST_HEADER).into_iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let mut hosts = lines.map(<[u8]>::trim_ascii);
    let last = hosts.rfind(|host| !host.is_empty())?;
    HeaderValue::from_bytes(last).ok()
}

/// The first of these headers that is not empty.
fn first<'h>(headers: &'h HeaderMap, names: &'static [HeaderName]) -> Option<(&'static str, &'h HeaderValue)> {
    names.iter().find_map(|name| Some((name.as_str(), headers.get(name).filter(|value| !value.is_empty())?)))
}

/// The same target with another path and query.
fn with_path(uri: Uri, field: &str, path: &[u8]) -> Result<Uri, Problem> {
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(lenient(path).ok_or_else(|| {
        let problem = format!("{} is not a path; begin with a slash, as in /api/orders?page=2", shown(path));
        Problem::invalid(field, problem)
    })?);
    Uri::from_parts(parts).map_err(|error| Problem::invalid(field, error.to_string()))
}

/// Proxies pass on what clients sent, including bytes that a strict parser refuses, such as a space. They are
/// percent-encoded, so that no spelling is refused here but served upstream.
fn lenient(path: &[u8]) -> Option<PathAndQuery> {
    let path = match path.first()? {
        b'/' => path,
        // The absolute form: what follows the authority.
        _ => {
            let authority = path.windows(3).position(|three| three == b"://")? + 3;
            let slash = path[authority..].iter().position(|byte| *byte == b'/');
            slash.map_or(b"/".as_slice(), |slash| &path[authority + slash..])
        }
    };
    if let Ok(fine) = PathAndQuery::try_from(path) {
        return Some(fine);
    }
    let mut encoded = String::with_capacity(path.len() + 16);
    for byte in path {
        match byte {
            b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=0x1f | 0x7f.. => {
                encoded.push_str(&format!("%{byte:02X}"));
            }
            byte => encoded.push(char::from(*byte)),
        }
    }
    PathAndQuery::try_from(encoded).ok()
}

fn shown(bytes: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(bytes))
}
