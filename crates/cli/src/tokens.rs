//! The tokens of the service: which there are, what each gives access to, and where a generated one is kept.
//!
//! Everything that shows clients or changes something always needs a token. On loopback one is generated at start if
//! none is set; on an address that others can reach there is no admin part without a configured token.

mod file;
mod guesses;
mod token;

pub use file::{TokenFile, find};
pub use guesses::{Attempt, Guesses, Wrong};
pub use token::Token;

use std::net::SocketAddr;

use crate::config::{Config, MetricsAccess};

/// What a request needs access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A decision.
    Decide,
    /// Metrics, or the description of the API: nothing that shows clients.
    Measure,
    /// Clients, rules and what happened.
    Read,
    /// Changes.
    Change,
}

/// What a token is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// For this, and for everything that needs less.
    Enough,
    /// It is one of ours, but this needs another.
    TooLittle,
    /// It is unknown.
    None,
}

/// The result for a request without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// It needs none.
    Fine,
    /// It needs one.
    Refused,
    /// No token gives access, because none is set.
    Closed,
}

/// Who may see the metrics without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measured {
    Everybody,
    /// Requests with a local host name.
    ThisMachine,
    #[default]
    Nobody,
}

/// The tokens of a service.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// Full access.
    pub admin: Option<Token>,
    /// Read-only access.
    pub read: Option<Token>,
    /// Access to decisions.
    pub decisions: Option<Token>,
    /// Who may see the metrics without a token.
    pub measured: Measured,
    /// Whether the admin token was generated at start.
    pub is_made: bool,
}

impl Tokens {
    /// The configured tokens, and a generated one if the service is on loopback and has no admin token.
    pub fn for_address(config: &Config, bound: SocketAddr) -> anyhow::Result<Tokens> {
        let is_local = bound.ip().to_canonical().is_loopback();
        let set = |token: &Option<String>| token.clone().map(Token::new);
        let admin = set(&config.admin.token);
        let is_made = admin.is_none() && is_local;
        Ok(Tokens {
            admin: if is_made { Some(Token::make()?) } else { admin },
            read: set(&config.admin.read_token),
            decisions: set(&config.decisions.token),
            measured: match config.metrics {
                MetricsAccess::Open => Measured::Everybody,
                MetricsAccess::Auto if is_local => Measured::ThisMachine,
                MetricsAccess::Auto | MetricsAccess::Token => Measured::Nobody,
            },
            is_made,
        })
    }

    /// Whether nothing can be seen or changed: the address is open to others, and no token is set.
    pub fn is_closed(&self) -> bool {
        self.admin.is_none() && self.read.is_none()
    }

    /// The result for a request without a token.
    pub fn without(&self, purpose: Purpose) -> Without {
        match purpose {
            Purpose::Decide if self.decisions.is_none() => Without::Fine,
            Purpose::Measure if self.measured == Measured::Everybody => Without::Fine,
            Purpose::Change if self.admin.is_none() => Without::Closed,
            Purpose::Read | Purpose::Measure if self.is_closed() => Without::Closed,
            _ => Without::Refused,
        }
    }

    /// What a given token is valid for.
    pub fn reach(&self, given: &[u8], purpose: Purpose) -> Reach {
        // All are compared, so that the time taken does not reveal which of them nearly matched.
        let is = |token: &Option<Token>| token.as_ref().is_some_and(|token| token.is(given));
        let (admin, read, decisions) = (is(&self.admin), is(&self.read), is(&self.decisions));
        let enough = match purpose {
            Purpose::Decide => admin || decisions,
            Purpose::Measure | Purpose::Read => admin || read,
            Purpose::Change => admin,
        };
        match enough {
            true => Reach::Enough,
            false if admin || read || decisions => Reach::TooLittle,
            false => Reach::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        let token = |text: &str| Some(Token::new(text.into()));
        Tokens { admin: token("a"), read: token("r"), decisions: token("d"), ..Tokens::default() }
    }

    #[test]
    fn each_token_opens_what_it_is_for_and_nothing_else() {
        use Purpose::{Change, Decide, Measure, Read};
        use Reach::{Enough, None, TooLittle};
        let opened = |given: &str| [Decide, Measure, Read, Change].map(|it| tokens().reach(given.as_bytes(), it));
        assert_eq!(opened("a"), [Enough, Enough, Enough, Enough]);
        assert_eq!(opened("r"), [TooLittle, Enough, Enough, TooLittle]);
        assert_eq!(opened("d"), [Enough, TooLittle, TooLittle, TooLittle]);
        assert_eq!(opened("x"), [None; 4]);
        assert_eq!(opened(""), [None; 4]);
    }

    /// On other addresses than loopback the admin part used to be open if a proxy rewrote `Host`; now it is off.
    #[test]
    fn an_address_that_others_can_reach_has_no_token_made_for_it() {
        let config = Config::default();
        let local = Tokens::for_address(&config, "127.0.0.1:80".parse().expect("an address")).expect("random numbers");
        assert!(
            local.is_made
                && local.measured == Measured::ThisMachine
                && local.without(Purpose::Change) == Without::Refused
        );
        for address in ["0.0.0.0:80", "10.0.0.7:80", "[::]:80"] {
            let open = Tokens::for_address(&config, address.parse().expect("an address")).expect("random numbers");
            assert!(open.is_closed() && !open.is_made && open.measured == Measured::Nobody, "{address}");
            for purpose in [Purpose::Measure, Purpose::Read, Purpose::Change] {
                assert_eq!(open.without(purpose), Without::Closed, "{address} {purpose:?}");
            }
            assert_eq!(open.without(Purpose::Decide), Without::Fine);
        }
    }

    #[test]
    fn no_two_starts_have_the_same_token() {
        let make = || Token::make().expect("random numbers");
        assert!(!make().is(make().text().as_bytes()));
        assert!(Token::weakness(make().text()).is_none() && make().text().len() >= 32);
        assert!(!format!("{:?}", tokens()).contains('"'), "{:?}", tokens());
    }
}
