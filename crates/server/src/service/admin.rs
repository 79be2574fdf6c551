//! Access to the admin part of the service.

use std::fmt;
use std::net::SocketAddr;

/// Access to the part that shows and changes things.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Admin {
    /// Every client: the service listens on loopback only.
    Open,
    /// Clients with this token.
    Token(String),
    /// None: the service listens on other addresses and has no token.
    Off,
}

impl Admin {
    /// With a token, clients that have it; without one, only on a loopback address.
    pub(crate) fn for_address(token: Option<String>, bound: SocketAddr) -> Admin {
        match token {
            Some(token) => Admin::Token(token),
            None if bound.ip().is_loopback() => Admin::Open,
            None => Admin::Off,
        }
    }
}

/// The token stays out of logs.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Admin::Open => "Open",
            Admin::Token(_) => "Token(..)",
            Admin::Off => "Off",
        })
    }
}
