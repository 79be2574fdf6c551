//! The state of rules from a database.

/// What is in force, and why nothing newer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// The version in force.
    pub(crate) version: i64,
    /// A newer version that was refused, and why.
    pub(crate) refused: Option<(i64, String)>,
    /// Why the database is unreachable.
    pub(crate) unreachable: Option<String>,
}

impl Status {
    /// A public message, if something is wrong.
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

/// Why rules could not be loaded, for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The database did not answer, or returned an error.
    Database,
    /// A row is not a valid rule.
    BadRule,
}

impl Failure {
    pub(crate) const ALL: [(Failure, &'static str); 2] =
        [(Failure::Database, "database"), (Failure::BadRule, "bad_rule")];
}
