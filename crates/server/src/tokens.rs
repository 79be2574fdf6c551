//! The tokens that open the service: which there are, what each opens, and where the one made at start is kept.
//!
//! What shows clients or changes something always needs a token. On loopback one is made at start where none is set; an
//! address that others can reach has no admin part without a token that somebody set.

mod file;
mod guesses;
mod token;

pub(crate) use file::{TokenFile, find};
pub(crate) use guesses::Guesses;
pub(crate) use token::Token;

use std::net::SocketAddr;

use crate::config::{Config, MetricsAccess};

/// What a request needs a token for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A decision.
    Decide,
    /// The page of metrics, or the description of the API: what shows no client.
    Measure,
    /// To see clients, rules and what happened.
    Read,
    /// To change something.
    Change,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// This, and everything that needs less.
    Enough,
    /// It is one of ours, and this needs another.
    TooLittle,
    /// It is none of ours.
    None,
}

/// What a request without a token gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    /// It needs none.
    Fine,
    /// It has to bring one.
    Refused,
    /// No token opens this: none was set.
    Closed,
}

/// Who sees what shows no client without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Measured {
    Everybody,
    /// Whoever asks this machine by a name of its own.
    ThisMachine,
    #[default]
    Nobody,
}

/// The tokens of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    /// Opens everything.
    pub(crate) admin: Option<Token>,
    /// Shows everything and changes nothing.
    pub(crate) read: Option<Token>,
    /// Decides.
    pub(crate) decisions: Option<Token>,
    /// Who sees the page of metrics without one.
    pub(crate) measured: Measured,
    /// Whether the admin token was made at start.
    pub(crate) is_made: bool,
}

impl Tokens {
    /// Those that a configuration sets, and one made for an address of this machine where the admin part would have none.
    pub(crate) fn for_address(config: &Config, bound: SocketAddr) -> anyhow::Result<Tokens> {
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

    /// Whether nobody can see or change anything: the address is open to others, and no token is set.
    pub(crate) fn is_closed(&self) -> bool {
        self.admin.is_none() && self.read.is_none()
    }

    /// What a request without a token gets.
    pub(crate) fn without(&self, purpose: Purpose) -> Without {
        match purpose {
            Purpose::Decide if self.decisions.is_none() => Without::Fine,
            Purpose::Measure if self.measured == Measured::Everybody => Without::Fine,
            Purpose::Change if self.admin.is_none() => Without::Closed,
            Purpose::Read | Purpose::Measure if self.is_closed() => Without::Closed,
            _ => Without::Refused,
        }
    }

    /// What this text is good for.
    pub(crate) fn reach(&self, given: &[u8], purpose: Purpose) -> Reach {
        // All are compared, so that the time taken does not tell which of them was nearly met.
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

    /// Off loopback the admin part used to start open where a proxy rewrote `Host`; now it does not start at all.
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
