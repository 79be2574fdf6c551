//! The rules in Postgres, and why they cannot be read or changed.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::RuleSet;
use super::bad_row::BadRow;
use super::edit::{self, Change, Edit, Edited};
use super::history::{self, Version};
use super::reading;
use crate::database::{DEADLINE, Database, DatabaseError, within};

/// How long a change may take: thousands of rules may be written.
const EDIT_DEADLINE: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 4;

/// Where the rules are.
#[derive(Clone, Debug)]
pub(crate) struct RuleTable {
    database: Database,
    /// So many may use the database at once, whoever asks over HTTP: its connections are everybody's.
    turns: Arc<Semaphore>,
}

/// Why rules could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("version {version} of the rules is refused: {}", listed(.problems))]
    Bad { version: i64, problems: Vec<BadRow> },
    #[error("the rules have changed: you have seen version {seen}, and they are at version {now}; look at them again")]
    Changed { seen: i64, now: i64 },
    #[error("there is a rule named `{0}` already; change it, or choose another name")]
    Exists(String),
    #[error("there is no rule named `{0}`")]
    Missing(String),
    #[error("there is no version {asked} of the rules; the newest is {newest}")]
    NoVersion { asked: i64, newest: i64 },
    #[error("somebody else is changing the rules right now; try again")]
    Busy,
    #[error("rule `{rule}`: {field}: holds a NUL character, which Postgres cannot keep; remove it")]
    Nul { rule: String, field: &'static str },
}

fn listed(problems: &[BadRow]) -> String {
    const MOST: usize = 10;
    let mut text = problems.iter().take(MOST).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if problems.len() > MOST {
        text.push_str(&format!("; and {} more", problems.len() - MOST));
    }
    text
}

impl From<sqlx::Error> for RulesError {
    fn from(error: sqlx::Error) -> RulesError {
        match DatabaseError::from(error) {
            DatabaseError::Refused { code, .. } if code == "55P03" => RulesError::Busy,
            DatabaseError::Refused { code, .. } if code == "42P01" => {
                let message = "there are no tables of tollkeeper yet; `tollkeeper rules apply FILE` makes them, and a service \
                               with rules_from does";
                RulesError::Database(DatabaseError::Refused { code, message: message.into() })
            }
            error => RulesError::Database(error),
        }
    }
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
        within(DEADLINE, reading::read(&mut connection)).await
    }

    /// The newest rules that are good: those of now, or of the last version before that can be understood, and then also
    /// why newer ones cannot.
    pub(crate) async fn read_last_good(&self) -> Result<(RuleSet, Option<RulesError>), RulesError> {
        let (mut connection, _turn) = self.connect().await?;
        within(DEADLINE, reading::last_good(&mut connection)).await
    }

    /// Versions, newest first: at most `limit` of those before `before`.
    pub(crate) async fn history(&self, before: Option<i64>, limit: i64) -> Result<Vec<Version>, RulesError> {
        let (mut connection, _turn) = self.connect().await?;
        within(DEADLINE, history::read(&mut connection, before, limit)).await
    }

    /// Changes rules: all of it as one version, or nothing.
    pub(crate) async fn edit(&self, edit: &Edit, change: Change) -> Result<Edited, RulesError> {
        let (mut connection, _turn) = self.connect().await?;
        within(EDIT_DEADLINE, edit::make(&mut connection, edit, change)).await
    }

    /// A connection, and the turn that it is used in.
    async fn connect(&self) -> Result<(PgConnection, SemaphorePermit<'_>), RulesError> {
        let turn = within(DEADLINE, async { Ok(self.turns.acquire().await) })
            .await
            .and_then(|turn| turn.map_err(|_| RulesError::Busy))?;
        Ok((self.database.connect().await?, turn))
    }
}
