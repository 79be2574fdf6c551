//! The rules in Postgres: reading and changing them.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::{Semaphore, SemaphorePermit};
use tollkeeper::postgres::editing::read;
use tollkeeper::postgres::{RuleSet, RulesError};

use super::edit::{self, Change, Edit, Edited};
use super::history::{self, Version};
use crate::database::{DEADLINE, Database, within};

/// How long a change may take: thousands of rules may be written.
const EDIT_DEADLINE: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 4;

/// The table of rules.
#[derive(Clone, Debug)]
pub(crate) struct RuleTable {
    database: Database,
    /// Bounds the connections that HTTP clients can cause.
    turns: Arc<Semaphore>,
}

impl RuleTable {
    pub(crate) fn new(database: Database) -> RuleTable {
        RuleTable { database, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The rules as they are now.
    pub(crate) async fn read(&self) -> Result<RuleSet, RulesError> {
        let (mut connection, _turn) = self.connect().await?;
        within(DEADLINE, read(&mut connection)).await
    }

    /// Versions, newest first: at most `limit` of those before `before`.
    pub(crate) async fn history(&self, before: Option<i64>, limit: i64) -> Result<Vec<Version>, RulesError> {
        let (mut connection, _turn) = self.connect().await?;
        within(DEADLINE, history::read(&mut connection, before, limit)).await
    }

    /// Changes rules: everything as one version, or nothing.
    pub(crate) async fn edit(&self, edit: &Edit, change: Change) -> Result<Edited, RulesError> {
        let (mut connection, _turn) = self.connect().await?;
        within(EDIT_DEADLINE, edit::make(&mut connection, edit, change)).await
    }

    /// A connection, and the permit to use it.
    async fn connect(&self) -> Result<(PgConnection, SemaphorePermit<'_>), RulesError> {
        let turn = within(DEADLINE, async { Ok(self.turns.acquire().await) })
            .await
            .and_then(|turn| turn.map_err(|_| RulesError::Busy))?;
        Ok((self.database.connect().await?, turn))
    }
}
