//! Why a row is not a valid rule, by column.

use std::fmt;

use serde::Serialize;

/// Why a row is not a valid rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadRow {
    /// The rule's name.
    pub rule: String,
    /// The column, and where in it.
    pub field: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule `{}`: {}: {}", self.rule.escape_debug(), self.field.escape_debug(), self.problem)
    }
}
