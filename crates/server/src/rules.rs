//! Rules that live in Postgres: read as a whole, changed one version at a time, followed by every instance.
//!
//! A set of rules is in force as a whole or not at all: one bad row, and the last good rules stay.

mod bad_row;
mod difference;
mod edit;
mod follow;
mod history;
mod metrics;
mod reading;
mod row;
mod snapshot;
mod status;
mod table;
mod yaml;

pub(crate) use difference::{Difference, canonical};
pub(crate) use edit::{Change, Edit, Edited};
pub(crate) use follow::{Following, open};
pub(crate) use history::Version;
pub(crate) use status::Failure;
pub(crate) use table::{RuleTable, RulesError};
pub(crate) use yaml::yaml;

use std::sync::Arc;

use tollkeeper::Policy;

/// The rules that a service starts with, and where newer ones come from, if not from its file.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) following: Option<Arc<Following>>,
}

/// Good rules, and which version of them.
#[derive(Debug)]
pub(crate) struct RuleSet {
    pub(crate) version: i64,
    pub(crate) policy: Policy,
}
