//! Rules that live in Postgres: changed one version at a time, shown and compared. The library reads and follows them.
//!
//! A set of rules comes into force as a whole or not at all: with one invalid row, the last good rules stay.

mod difference;
mod edit;
mod follow;
mod history;
mod metrics;
mod table;

pub(crate) use difference::{Difference, canonical};
pub(crate) use edit::{Change, Edit, Edited};
pub(crate) use follow::{Following, Rules, open};
pub(crate) use history::Version;
pub(crate) use table::RuleTable;
pub(crate) use tollkeeper::postgres::editing::yaml;
pub(crate) use tollkeeper::postgres::{RuleSet, RulesError};
