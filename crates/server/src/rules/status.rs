//! How it stands with rules that come from a database.

/// What is in force and why it is not something newer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// The version in force.
    pub(crate) version: i64,
    /// A newer version, and what is wrong with it.
    pub(crate) refused: Option<(i64, String)>,
    /// Why the database does not answer.
    pub(crate) unreachable: Option<String>,
}

impl Status {
    /// What there is to say in public, if anything is not as it should be.
    pub(crate) fn trouble(&self) -> Option<String> {
        let version = self.version;
        match self {
            Status { unreachable: Some(_), .. } => {
                Some(format!("the database is unreachable; version {version} stays in force"))
            }
            Status { refused: Some((bad, _)), .. } => {
                Some(format!("version {bad} is refused; version {version} stays in force"))
            }
            _ => None,
        }
    }
}

/// What is counted when rules cannot be had.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The database did not answer, or said no.
    Database,
    /// A row is not a valid rule.
    BadRule,
}

impl Failure {
    pub(crate) const ALL: [(Failure, &'static str); 2] =
        [(Failure::Database, "database"), (Failure::BadRule, "bad_rule")];
}
