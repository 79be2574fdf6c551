//! Access control of the admin part.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, AUTHORIZATION, HOST};
use http::{HeaderMap, StatusCode};
use subtle::ConstantTimeEq as _;
use tollkeeper::http::Problem;

use super::problem::unauthorized;
use super::shared::Shared;
use crate::dashboard;
use crate::service::{Admin, Service};
use crate::strict::{Note, quoted};

/// Admits requests with admin access.
pub(super) async fn require(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match admit(&shared.service.admin, &request) {
        Ok(()) => next.run(request).await,
        // A browser gets the page that asks for the token. It contains no data, and the status is still a refusal.
        Err(problem) if request.uri().path() == "/" && wants_page(request.headers()) => {
            dashboard::put_into(problem.into_response())
        }
        Err(problem) => problem.into_response(),
    }
}

fn admit(admin: &Admin, request: &Request) -> Result<(), Problem> {
    match admin {
        Admin::Open => require_local_host(request),
        Admin::Token(token) => authenticate(request.headers(), token),
        Admin::Off => {
            let detail = "the admin part is off, because this address is open to the network and no token is set; \
                          set admin.token or listen on loopback";
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
    }
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
pub(super) fn who(service: &Service, name: Option<Note>) -> String {
    let door = if matches!(service.admin, Admin::Token(_)) { "admin token" } else { "loopback" };
    let name = name.filter(|Note(name)| !name.trim().is_empty());
    name.map_or_else(|| door.to_string(), |Note(name)| format!("{name} ({door})"))
}

/// Without a token only clients on this machine have access, and they must use a local host name. Any other name
/// means a web page whose name points here (DNS rebinding), or a proxy that lets anyone in by mistake.
fn require_local_host(request: &Request) -> Result<(), Problem> {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = request.uri().host().or(header) else { return Ok(()) };
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(n, _)| n);
    let name = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let is_local = match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost"),
    };
    if is_local {
        return Ok(());
    }
    let detail =
        format!("the admin part is open to this machine only, and {} is another name; set admin.token", quoted(host));
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn authenticate(headers: &HeaderMap, token: &str) -> Result<(), Problem> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return Err(unauthorized("this needs the admin token; send Authorization: Bearer TOKEN"));
    };
    let (scheme, given) = value.as_bytes().split_at(value.len().min(7));
    // In constant time: the duration of a refusal must not reveal how much of a guess was right.
    let right = given.trim_ascii().ct_eq(token.as_bytes());
    if scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(right) {
        return Ok(());
    }
    Err(unauthorized("this is not the admin token; send Authorization: Bearer TOKEN"))
}
