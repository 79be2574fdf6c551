//! What a service says about a request, in any protocol.

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Denied,
    /// Neither: the service is overloaded.
    Shed,
    /// Anything else.
    Failed(String),
}
