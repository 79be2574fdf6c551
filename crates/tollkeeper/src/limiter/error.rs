//! Why a request was not decided.

use tollkeeper_core::CostError;

use crate::store::Overloaded;

/// Why [`Limiter::check`](super::Limiter::check) did not decide. A store that does not answer is not an error: each
/// rule's failure policy answers for it, and the verdict says so.
///
/// ```
/// use tollkeeper::{CheckError, Limiter, Request};
///
/// /// What an HTTP server should answer.
/// async fn status(limiter: &Limiter, request: &impl Request) -> u16 {
///     match limiter.check(request).await {
///         Ok(verdict) if verdict.is_allowed() => 200,
///         Ok(_) => 429,
///         Err(CheckError::Overloaded(_)) => 503,
///         Err(_) => 400,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// An attribute that should carry a cost is not a number.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// Too many requests are waiting for a decision, and this one was shed.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
}

/// Why [`Limiter::try_check`](super::Limiter::try_check) did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryCheckError {
    /// An attribute that should carry a cost is not a number.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The store is shared with other processes, so its answer has to be awaited.
    #[error("a shared store needs async; use `check`, or a memory store")]
    SharedStore,
    /// Too many requests are waiting for a decision, and this one was shed.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
}

impl From<CheckError> for TryCheckError {
    fn from(error: CheckError) -> TryCheckError {
        match error {
            CheckError::Cost(error) => TryCheckError::Cost(error),
            CheckError::Overloaded(overloaded) => TryCheckError::Overloaded(overloaded),
        }
    }
}
