//! Checks the token of a request against those of the service, for HTTP and gRPC alike.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::service::Service;
use crate::tokens::{Purpose, Reach, Without};

/// Where a proxy puts its token when `Authorization` belongs to its client.
pub(super) const TOKEN_HEADER: &str = "x-tollkeeper-token";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It has no token.
    Missing,
    /// Its token is unknown.
    Wrong,
    /// Its token is valid, but not for this.
    TooLittle,
    /// Too many wrong tokens from its address are waiting for their answers; this one was not checked.
    TooMany,
    /// No token gives access, because none is set.
    Closed,
}

/// Admits a request that needs no token, or has the right one. After many wrong ones, the refusal is delayed.
pub(super) async fn require(
    service: &Service,
    purpose: Purpose,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<(), Refusal> {
    match service.tokens.without(purpose) {
        Without::Fine => return Ok(()),
        Without::Closed => return Err(Refusal::Closed),
        Without::Refused => {}
    }
    let given = given(headers).ok_or(Refusal::Missing)?;
    // Only our own tests send requests without an address.
    let address = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| service.identity.client_address(headers, peer));
    let attempt = service.guesses.begin(address).ok_or(Refusal::TooMany)?;
    match service.tokens.reach(given, purpose) {
        Reach::Enough => Ok(()),
        Reach::TooLittle => Err(Refusal::TooLittle),
        Reach::None => {
            attempt.fail().await;
            Err(Refusal::Wrong)
        }
    }
}

/// The token after `Bearer`, or in the dedicated header. Two that differ count as none.
fn given(headers: &HeaderMap) -> Option<&[u8]> {
    let mut own = headers.get_all(TOKEN_HEADER).into_iter();
    if let Some(first) = own.next() {
        return own.all(|other| other == first).then(|| first.as_bytes().trim_ascii());
    }
    let mut lines = headers.get_all(AUTHORIZATION).into_iter();
    let value = lines.next()?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    (lines.next().is_none() && scheme.eq_ignore_ascii_case(b"bearer ")).then(|| token.trim_ascii())
}
