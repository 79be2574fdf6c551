//! Why rules could not be read or changed.

use super::bad_row::BadRow;
use super::database::DatabaseError;

/// Why rules could not be read or changed.
#[derive(Debug, thiserror::Error)]
// Exhaustive on purpose: code that answers an edit must handle each of them.
pub enum RulesError {
    /// The database is unreachable, or returned an error.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Rows that are not valid rules.
    #[error("version {version} of the rules is refused: {}", listed(.problems))]
    Bad {
        /// Of which version.
        version: i64,
        /// Each of them.
        problems: Vec<BadRow>,
    },
    /// The rules have changed since the caller looked at them.
    #[error("the rules have changed: you have read version {seen}, and they are now at version {now}; read them again")]
    Changed {
        /// The version that the caller has seen.
        seen: i64,
        /// The version now.
        now: i64,
    },
    /// A rule to create, whose name is already used.
    #[error("there is a rule named `{0}` already; change it, or choose another name")]
    Exists(String),
    /// A rule to change, which does not exist.
    #[error("there is no rule named `{0}`")]
    Missing(String),
    /// A version that does not exist.
    #[error("there is no version {asked} of the rules; the newest is {newest}")]
    NoVersion {
        /// The version that was asked for.
        asked: i64,
        /// The newest one.
        newest: i64,
    },
    /// Another edit holds the lock.
    #[error("somebody else is changing the rules right now; try again")]
    Busy,
    /// A text that Postgres cannot store.
    #[error("rule `{rule}`: {field}: contains a NUL character, which Postgres cannot store; remove it")]
    Nul {
        /// The rule.
        rule: String,
        /// The column.
        field: String,
    },
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
                let message = "the tables do not exist yet; `tollkeeper rules apply FILE` creates them, and so does a service \
                               with rules_from";
                RulesError::Database(DatabaseError::Refused { code, message: message.into() })
            }
            error => RulesError::Database(error),
        }
    }
}
