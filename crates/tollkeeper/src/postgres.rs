//! Rules in Postgres, followed by every process: a change is in force within a second.
//!
//! They are edited with `tollkeeper rules apply FILE`, over the HTTP API of a service, or by SQL. A set of rules
//! comes into force as a whole or not at all: with one invalid row, the last good rules stay.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tollkeeper::postgres::{self, Database};
//! use tollkeeper::{Limiter, MemoryStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::new("postgres://tollkeeper:PASSWORD@127.0.0.1:5432/limits")?;
//! let opened = postgres::open(database, Some("rules.snapshot".into())).await?;
//! let limiter = Arc::new(Limiter::new(opened.policy, MemoryStore::new()));
//! let followed = limiter.clone();
//! tokio::spawn(opened.following.run(move |policy| drop(followed.replace_policy(policy))));
//! # Ok(()) }
//! ```

mod bad_row;
mod database;
mod error;
mod fields;
mod follow;
mod policy;
mod reading;
mod row;
mod set;
mod snapshot;
mod status;
mod yaml;

pub use bad_row::BadRow;
pub use database::{Database, DatabaseError};
pub use error::RulesError;
pub use follow::{Following, OpenError, Opened, open};
pub use set::RuleSet;
pub use status::{Failure, Status};

/// For the service, which edits the tables; not part of the API.
#[doc(hidden)]
pub mod editing {
    pub use super::database::{DEADLINE, RULES, Step, within};
    pub use super::fields::fields;
    pub use super::policy::policy;
    pub use super::reading::{last_good, read, rows, rows_at, version};
    pub use super::row::Row;
    pub use super::yaml::yaml;
}
