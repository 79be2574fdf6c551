//! What becomes of a request that is to be decided without a call to a shared store, for hosts that must not wait.

use tollkeeper_core::{Charge, Verdict};

/// What became of a request that was to be decided without a call.
#[derive(Debug)]
// Exhaustive on purpose: there is no third way.
pub enum Ahead {
    /// Decided: in memory, by a cached denial or by leased tokens.
    Decided(Verdict),
    /// Not decided, and nothing was charged: [`Limiter::check_charges`](crate::Limiter::check_charges) asks the store.
    Open(Vec<Charge>),
}
