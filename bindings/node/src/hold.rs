//! What a request holds until it ends: slots, and unsettled estimates.

use std::sync::Arc;

use napi_derive::napi;
use tollkeeper_engine::{Ask, Engine, Estimate, Slots};

use crate::answers::{Answer, Audience, answered};
use crate::errors::{Raised, misused};
use crate::limiter::pairs;

/// The slots of a request.
#[napi]
pub struct Held(Option<Slots>);

impl Held {
    pub(crate) fn new(slots: Slots) -> Held {
        Held(Some(slots))
    }
}

#[napi]
impl Held {
    /// Releases the slots. Calling it again does nothing.
    #[napi]
    pub fn release(&mut self) {
        self.0 = None;
    }
}

/// An estimate that was charged.
#[napi]
pub struct Estimated {
    engine: Arc<Engine>,
    estimate: Option<Estimate>,
}

impl Estimated {
    pub(crate) fn new(engine: Arc<Engine>, estimate: Estimate) -> Estimated {
        Estimated { engine, estimate: Some(estimate) }
    }
}

#[napi]
impl Estimated {
    /// Corrects the estimate to the actual usage: a cost, attributes that carry costs, or both.
    #[napi]
    pub fn settle(
        &mut self,
        cost: Option<u32>,
        attributes: Vec<String>,
        ticket: u32,
    ) -> Result<Option<Answer>, Raised> {
        let estimate =
            self.estimate.take().ok_or_else(|| misused("the reservation has already been settled or released"))?;
        answered(
            &self.engine,
            self.engine.ask(Ask::Settle(estimate, cost, pairs(attributes))),
            Audience::Caller,
            ticket,
        )
    }

    /// Leaves the estimate charged, and releases slots.
    #[napi]
    pub fn release(&mut self) {
        self.estimate = None;
    }
}
