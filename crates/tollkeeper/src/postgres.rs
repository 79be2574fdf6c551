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

pub mod editing {
    //! The tables themselves, for programs that edit rules as the service does: rows of one version, what they mean as
    //! rules, and the migrations that create the tables.
    //!
    //! A program that only follows rules needs [`open`](super::open) and nothing of this module. Its functions take
    //! connections of `sqlx` 0.9, so a new major version of `sqlx` is a new major version of this crate.
    //!
    //! ```no_run
    //! use tollkeeper::postgres::{Database, editing};
    //!
    //! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    //! let database = Database::new("postgres://tollkeeper:PASSWORD@127.0.0.1:5432/limits")?;
    //! database.migrate().await?;
    //! let mut connection = database.connect().await?;
    //! let set = editing::read(&mut connection).await?;
    //! println!("version {}:\n{}", set.version, editing::yaml(set.policy.rules().iter().map(|rule| rule.spec())));
    //! # Ok(()) }
    //! ```

    pub use super::database::{DEADLINE, RULES, Step, within};
    pub use super::fields::fields;
    pub use super::policy::policy;
    pub use super::reading::{last_good, read, rows, rows_at, version};
    pub use super::row::Row;
    pub use super::yaml::yaml;
}
