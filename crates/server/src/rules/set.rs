//! Rules that come into force as a whole.

use tollkeeper::Policy;

/// Valid rules, and their version.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) version: i64,
    pub(crate) policy: Policy,
}
