//! The engine's errors as JavaScript errors, with the same messages. `lib/errors.js` turns the codes into classes.

use tollkeeper_engine::{Error, Kind};

/// What a function of the addon throws.
pub(crate) type Raised = napi::Error<&'static str>;

/// The code of a kind of error.
pub(crate) fn code(kind: Kind) -> &'static str {
    match kind {
        Kind::Rule => "ERR_TOLLKEEPER_RULE",
        Kind::Config => "ERR_TOLLKEEPER_CONFIG",
        Kind::Cost => "ERR_TOLLKEEPER_COST",
        Kind::Request => "ERR_TOLLKEEPER_REQUEST",
        Kind::Store | Kind::Unreachable => "ERR_TOLLKEEPER_STORE",
        Kind::Overloaded => "ERR_TOLLKEEPER_OVERLOADED",
        Kind::Address => "ERR_TOLLKEEPER_ADDRESS",
        Kind::Usage => "ERR_TOLLKEEPER_USAGE",
    }
}

/// An error to throw.
pub(crate) fn raise(error: Error) -> Raised {
    napi::Error::new(code(error.kind), error.message)
}

/// An error of the caller.
pub(crate) fn misused(message: impl ToString) -> Raised {
    raise(Error::new(Kind::Usage, message))
}
