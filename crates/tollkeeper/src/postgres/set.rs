//! Rules that come into force as a whole.

use tollkeeper_core::Policy;

/// Valid rules, and their version.
#[derive(Debug)]
pub struct RuleSet {
    /// Counted from 1.
    pub version: i64,
    /// The rules.
    pub policy: Policy,
}
