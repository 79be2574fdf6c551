//! The rules in force, and how requests are read and verdicts written for them.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tollkeeper::file::Settings;
use tollkeeper::http::{Answer, AnswerStyle, Identity};
use tollkeeper::{Limiter, Policy, RuleSpec};

use crate::error::{Error, Kind};
use crate::request::{Head, Needs};

/// The rules in force.
pub(crate) struct Rules {
    pub(crate) specs: Vec<RuleSpec>,
    pub(crate) needs: Arc<Needs>,
    pub(crate) front: Arc<Front>,
}

/// How requests become attributes, and verdicts responses.
pub(crate) struct Front {
    pub(crate) identity: Identity,
    pub(crate) style: AnswerStyle,
    /// Whether a rule may ask for the client's address.
    needs_address: bool,
}

impl Rules {
    pub(crate) fn new(specs: Vec<RuleSpec>, settings: &Settings) -> Result<Rules, Error> {
        let needs = Needs::of(&specs, settings);
        let (identity, style) = (settings.identity_for(&specs)?, settings.answer_style()?);
        let front = Front { identity, style, needs_address: needs.address };
        Ok(Rules { needs: Arc::new(needs), front: Arc::new(front), specs })
    }

    /// The same rules for a limiter.
    pub(crate) fn policy(&self) -> Result<Policy, Error> {
        policy(&self.specs)
    }
}

pub(crate) fn policy(specs: &[RuleSpec]) -> Result<Policy, Error> {
    Policy::new(specs.iter().cloned()).map_err(|errors| Error::new(Kind::Rule, errors))
}

impl Front {
    /// Refuses requests with two identities, or without an address where a rule needs one.
    pub(crate) fn refuse(&self, limiter: &Limiter, head: &Head) -> Result<(), Error> {
        if let Some(place) = self.identity.contradiction(&head.uri, &head.headers) {
            let message = format!("`{place}` occurs several times with different values");
            return Err(Error::refused(Kind::Request, message, Answer::contradiction(place)));
        }
        if head.peer.is_none() && self.needs_address {
            let request = head.describe(&self.identity);
            // This does not charge anything. A rule without an address must not look like one that is enforced.
            limiter.charges(from_ref(&request))?;
            if request.lacks_address.load(Relaxed) {
                return Err(Error::new(
                    Kind::Address,
                    "a rule limits by `ip`, but the server does not provide the client's address (a Unix socket?); make \
                     the server provide it, or limit by something else, such as header.x-api-key",
                ));
            }
        }
        Ok(())
    }
}
