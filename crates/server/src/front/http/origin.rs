//! Prevents cross-site request forgery: changes are refused to pages of other origins, which can make any browser
//! that shows them send requests here. Clients other than browsers do not send these headers.

use std::net::IpAddr;

use axum::extract::Request;
use http::header::{HOST, ORIGIN};
use http::{HeaderValue, StatusCode};
use tollkeeper::http::{Identity, Problem};

use crate::strict::quoted;

/// What browsers say about the page that sends a request.
pub(super) const SEC_FETCH_SITE: &str = "sec-fetch-site";
const X_FORWARDED_HOST: &str = "x-forwarded-host";

/// Refuses requests from a page of another origin.
pub(super) fn require_own(request: &Request, identity: &Identity, peer: Option<IpAddr>) -> Result<(), Problem> {
    let headers = request.headers();
    let mut sites = headers.get_all(SEC_FETCH_SITE).into_iter().peekable();
    if sites.peek().is_some() {
        // `same-site` is another port or subdomain, so another site's page.
        let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
        return if sites.all(is_own) { Ok(()) } else { Err(foreign(headers.get(ORIGIN))) };
    }
    // Older browsers, and all of them on plain HTTP to other machines, send only the origin.
    for origin in headers.get_all(ORIGIN) {
        if !is_own(origin, request, identity, peer) {
            return Err(foreign(Some(origin)));
        }
    }
    Ok(())
}

/// Whether the page is from this service, by the host name that the browser uses.
fn is_own(origin: &HeaderValue, request: &Request, identity: &Identity, peer: Option<IpAddr>) -> bool {
    let Some((scheme, origin)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else { return false };
    let named =
        |host: Option<&str>| host.is_some_and(|host| without_port(host, scheme) == without_port(origin, scheme));
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let target = request.uri().authority().map(|authority| authority.as_str());
    // A proxy may put another name into Host, and passes the original one on here; untrusted peers are ignored.
    let forwarded = || text(X_FORWARDED_HOST).filter(|_| peer.is_some_and(|peer| identity.trusts(peer)));
    named(target.or_else(|| text(HOST.as_str()))) || named(forwarded())
}

/// In lower case, without the scheme's default port.
fn without_port(host: &str, scheme: &str) -> String {
    let host = host.to_ascii_lowercase();
    let usual = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    host.strip_suffix(usual).map_or_else(|| host.clone(), str::to_string)
}

fn foreign(origin: Option<&HeaderValue>) -> Problem {
    let origin =
        origin.map_or_else(|| "another origin".into(), |origin| quoted(&String::from_utf8_lossy(origin.as_bytes())));
    let detail = format!(
        "this cross-origin request from {origin} is refused; behind a proxy, pass Host on, or add the proxy to \
         trusted_proxies and send X-Forwarded-Host"
    );
    Problem::new(StatusCode::FORBIDDEN, detail)
}
