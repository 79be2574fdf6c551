//! Errors, in the words of the library, and the kind of exception the host raises for each.

use tollkeeper::http::Answer;
use tollkeeper::{CheckError, CostError, Overloaded, SettleError, StoreError};

/// Which exception it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An invalid rule, quota or limit.
    Rule,
    /// An invalid file or setting.
    Config,
    /// An attribute that should hold a cost is not a number.
    Cost,
    /// A request that names its client in two ways, or that cannot be read.
    Request,
    /// A store that cannot be used.
    Store,
    /// A store that is unreachable at the moment: the same exception.
    Unreachable,
    /// A request that was shed, because too many wait for a decision.
    Overloaded,
    /// A limit by address for a request without a known address.
    Address,
    /// A call that makes no sense.
    Usage,
}

/// What went wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Which exception it is.
    pub kind: Kind,
    /// What happened and what to do.
    pub message: String,
    /// The response to an HTTP client, if the request was at fault.
    pub answer: Option<Box<Answer>>,
}

impl Error {
    /// An error that no client caused.
    pub fn new(kind: Kind, message: impl ToString) -> Error {
        Error { kind, message: message.to_string(), answer: None }
    }

    /// A request that is refused with this answer.
    pub fn refused(kind: Kind, message: impl ToString, answer: Answer) -> Error {
        Error { kind, message: message.to_string(), answer: Some(Box::new(answer)) }
    }
}

impl From<CostError> for Error {
    fn from(error: CostError) -> Error {
        Error::refused(Kind::Cost, &error, Answer::bad_cost(&error))
    }
}

impl From<Overloaded> for Error {
    fn from(overloaded: Overloaded) -> Error {
        Error::refused(Kind::Overloaded, overloaded, Answer::overloaded(&overloaded))
    }
}

impl From<CheckError> for Error {
    fn from(error: CheckError) -> Error {
        match error {
            CheckError::Cost(error) => error.into(),
            CheckError::Overloaded(overloaded) => overloaded.into(),
            error => Error::new(Kind::Store, error),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        match error {
            StoreError::Overloaded(overloaded) => overloaded.into(),
            error => Error::new(Kind::Store, error),
        }
    }
}

impl From<SettleError> for Error {
    fn from(error: SettleError) -> Error {
        match error {
            SettleError::Cost(error) => error.into(),
            SettleError::Store(error) => error.into(),
            error => Error::new(Kind::Store, error),
        }
    }
}
