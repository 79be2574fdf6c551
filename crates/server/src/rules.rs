//! Rules in Postgres: read as a whole, changed one version at a time, followed by every instance.
//!
//! A set of rules comes into force as a whole or not at all: with one invalid row, the last good rules stay.

mod bad_row;
mod difference;
mod edit;
mod error;
mod fields;
mod follow;
mod history;
mod metrics;
mod policy;
mod reading;
mod row;
mod set;
mod snapshot;
mod status;
mod table;
mod yaml;

pub(crate) use difference::{Difference, canonical};
pub(crate) use edit::{Change, Edit, Edited};
pub(crate) use error::RulesError;
pub(crate) use follow::{Following, Rules, open};
pub(crate) use history::Version;
pub(crate) use set::RuleSet;
pub(crate) use status::Failure;
pub(crate) use table::RuleTable;
pub(crate) use yaml::yaml;
