//! Rules that are in force as a whole.

use tollkeeper_core::Policy;

/// Good rules, and which version of them.
#[derive(Debug)]
pub struct RuleSet {
    /// Counted from 1.
    pub version: i64,
    /// The rules.
    pub policy: Policy,
}
