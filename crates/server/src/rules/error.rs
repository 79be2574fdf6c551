//! Why rules could not be read or changed.

use super::bad_row::BadRow;
use crate::database::DatabaseError;

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
    Nul { rule: String, field: String },
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
