//! Access control of the routes: requests from pages of other origins must not change anything, and everything that
//! shows clients or changes something needs a token.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use tollkeeper::http::Problem;

use super::origin;
use super::problem::unauthorized;
use super::shared::Shared;
use crate::dashboard;
use crate::front::connections::Peer;
use crate::front::credential::{self, Refusal};
use crate::route::{Access, Route};
use crate::service::Service;
use crate::strict::Note;
use crate::tokens::{Measured, Purpose};

/// Admits requests that may use a route.
pub(super) async fn require(
    State((shared, route)): State<(Arc<Shared>, Route)>,
    request: Request,
    next: Next,
) -> Response {
    let service = &shared.service;
    let admitted = match need(service, route, &request) {
        Ok(Some((purpose, peer))) => {
            let admitted = credential::require(service, purpose, request.headers(), peer).await;
            admitted.map_err(|refusal| refused(refusal, purpose))
        }
        Ok(None) => Ok(()),
        Err(problem) => Err(problem),
    };
    match admitted {
        Ok(()) => next.run(request).await,
        // A browser gets the page that says so. It contains no data, and the status is still a refusal.
        Err(problem) if route == Route::Index && wants_page(request.headers()) => {
            dashboard::put_into(problem.into_response())
        }
        Err(problem) => problem.into_response(),
    }
}

/// Which kind of token a request needs, if any, and its address.
fn need(service: &Service, route: Route, request: &Request) -> Result<Option<(Purpose, Option<IpAddr>)>, Problem> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.ip);
    let is_change = !request.method().is_safe();
    // A proxy sends the headers of the request that it asks about, and pages of its own site have another origin than
    // ours.
    if is_change && route != Route::Authorize {
        origin::require_own(request, &service.identity, peer)?;
    }
    let purpose = match route.access() {
        Access::Open => return Ok(None),
        Access::Page if service.tokens.is_closed() => return Err(closed()),
        Access::Page => return Ok(None),
        Access::Decide => Purpose::Decide,
        Access::Measure => Purpose::Measure,
        Access::Admin if is_change => Purpose::Change,
        Access::Admin => Purpose::Read,
    };
    if purpose == Purpose::Measure && service.tokens.measured == Measured::ThisMachine && names_this_machine(request) {
        return Ok(None);
    }
    Ok(Some((purpose, peer)))
}

fn refused(refusal: Refusal, purpose: Purpose) -> Problem {
    let needed = match purpose {
        Purpose::Decide => "the token in decisions.token",
        Purpose::Measure | Purpose::Read => "the admin token or the read-only token",
        Purpose::Change => "the admin token",
    };
    match refusal {
        Refusal::Missing => unauthorized(&format!("this needs {needed}; send Authorization: Bearer TOKEN")),
        Refusal::Wrong => unauthorized(&format!("this is not {needed}; send Authorization: Bearer TOKEN")),
        Refusal::TooLittle => {
            Problem::new(StatusCode::FORBIDDEN, format!("this token is not sufficient; this needs {needed}"))
        }
        Refusal::TooMany => {
            let detail = "too many wrong tokens come from this address, so this one was not checked; try again later";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).header(RETRY_AFTER, HeaderValue::from_static("1"))
        }
        Refusal::Closed => closed(),
    }
}

fn closed() -> Problem {
    let detail = "the admin API is off, because this address is reachable from the network and no token is set; set \
                  admin.token or listen on loopback";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Browsers ask for HTML when a user opens an address; scripts and tools do not.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/html")
    })
}

/// Who makes a change, for the audit and the history of rules. There is one token for all, so the name is unverified.
pub(super) fn who(name: Option<Note>) -> String {
    const DOOR: &str = "admin token";
    let name = name.filter(|Note(name)| !name.trim().is_empty());
    name.map_or_else(|| DOOR.to_string(), |Note(name)| format!("{name} ({DOOR})"))
}

/// Whether a request uses a local host name. Any other name means a web page whose name points here (DNS rebinding),
/// or a proxy that lets anyone in by mistake.
fn names_this_machine(request: &Request) -> bool {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = request.uri().host().or(header) else { return true };
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(n, _)| n);
    let name = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost"),
    }
}
