//! The token that a request brings, held against those of the service. HTTP and gRPC ask here alike.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::service::Service;
use crate::tokens::{Purpose, Reach, Without};

/// Where a proxy puts its token when `Authorization` is its client's.
pub(super) const TOKEN_HEADER: &str = "x-tollkeeper-token";

/// Why a request may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It brings no token.
    Missing,
    /// It brings a token that is none of ours.
    Wrong,
    /// It brings a token of ours that is for less.
    TooLittle,
    /// Too many wrong ones from its address wait for their answers; this one was not looked at.
    TooMany,
    /// No token opens this, because none is set.
    Closed,
}

/// Lets a request go on that needs no token, or brings the right one. A wrong one is refused late where there were many.
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
    // A request without an address is one of our own tests.
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

/// What follows `Bearer`, or stands in the header of its own. Two that differ are none.
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
