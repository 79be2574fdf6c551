//! Rules that are in force as a whole.

use tollkeeper::Policy;

/// Good rules, and which version of them.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) version: i64,
    pub(crate) policy: Policy,
}
