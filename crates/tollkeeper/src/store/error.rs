//! Why a store could not decide.

use std::time::Duration;

/// Why a store could not decide. Nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Every entry belongs to a client that is still limited, so none can be dropped for a new one, and the shared
    /// buckets for new clients are all in use too: by more than 256 rules, or by `concurrency` limits with very many
    /// slots.
    #[error(
        "the memory store is full of live limits and has no room for charge {charge}; raise store.max_keys, or \
         store.max_log_bytes for sliding_window_log and concurrency"
    )]
    Full {
        /// The charge that found no room, by position.
        charge: usize,
    },
    /// Some of the charges belong to a server that is unreachable; the others could be decided without them.
    #[error("a part of the store is unavailable: {reason}")]
    PartlyUnavailable {
        /// Those charges, by position.
        charges: Vec<usize>,
        /// What happened, without secrets.
        reason: String,
    },
    /// The store did not answer in time, or not at all. Whether the charge was made is unknown.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What happened, without secrets.
        reason: String,
    },
    /// As many reservations wait to be settled as may be kept. The reservation was not kept.
    #[error("too many reservations {whose} wait to be settled")]
    TooManyReservations {
        /// Those of this client, or of all clients.
        whose: &'static str,
    },
    /// This process is overloaded: the store was not asked.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
}

#[cfg(feature = "redis")]
impl StoreError {
    pub(crate) fn unavailable(reason: impl Into<String>) -> StoreError {
        StoreError::Unavailable { reason: reason.into() }
    }
}

/// The request was shed: too many wait for a decision. It was neither allowed nor denied, and nothing was charged.
///
/// A store that does not answer is another case, which each rule's failure policy answers. Overload never uses that,
/// because a flood would then switch limits off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("overloaded: too many requests are waiting for a decision; retry in {} s", .retry_after.as_secs_f32().ceil())]
#[non_exhaustive]
pub struct Overloaded {
    /// When to try again.
    pub retry_after: Duration,
}

// Only a store that is shared makes requests wait.
#[cfg(feature = "redis")]
impl Overloaded {
    /// Retry in a second: a client that retries at once meets the same overload.
    pub(crate) const fn new() -> Overloaded {
        Overloaded { retry_after: Duration::from_secs(1) }
    }
}
