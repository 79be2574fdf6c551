//! Why a store could not decide.

/// Why a store could not decide. Nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Every entry is of a client that is still limited, so none can be dropped for a new one.
    #[error(
        "the memory store is full of live limits and has no room for the key or the log of charge {charge}; \
         raise store.max_keys, or keep fewer logs (sliding_window_log, concurrency)"
    )]
    Full {
        /// The charge that found no room, by position.
        charge: usize,
    },
    /// Some of the charges are kept by a server that is unreachable; the others could be decided without them.
    #[error("a part of the store is unavailable: {reason}")]
    Away {
        /// Those charges, by position.
        charges: Vec<usize>,
        /// What happened, without secrets.
        reason: String,
    },
    /// The store did not answer in time, or not at all. Whether a charge arrived is not known.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What happened, without secrets.
        reason: String,
    },
}

impl StoreError {
    pub(crate) fn unavailable(reason: impl Into<String>) -> StoreError {
        StoreError::Unavailable { reason: reason.into() }
    }
}
