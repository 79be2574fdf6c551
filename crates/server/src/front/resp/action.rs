//! What a command asks for, once it was parsed.

use tollkeeper::{Charge, Descriptor};

use super::reply::Reply;
use super::throttle::Throttle;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Action {
    /// Already answered.
    Answer(Reply),
    Throttle(Throttle),
    Check(Descriptor),
    /// `DEL`: the buckets of these keys.
    Reset(Vec<Charge>),
    /// `EXEC`: what was queued since `MULTI`, in order.
    Transaction(Vec<Queued>),
}

impl Action {
    /// What its answer takes, if that is known already.
    pub(super) fn answered(&self) -> usize {
        match self {
            Action::Answer(reply) => reply.size(),
            _ => 0,
        }
    }
}

/// A command of a transaction.
#[derive(Debug)]
pub(super) struct Queued {
    /// Its index in [`NAMES`](super::names::NAMES).
    pub(super) name: Option<usize>,
    pub(super) action: Action,
}
