//! How a command ends: its exit status.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Fine,
    /// The answer is no: denied, or invalid.
    No,
}
