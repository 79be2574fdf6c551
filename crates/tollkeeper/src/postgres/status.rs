//! The state of rules from a database.

/// What is in force, and why nothing newer is.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The version in force.
    pub version: i64,
    /// A newer version that was refused, and why.
    pub refused: Option<(i64, String)>,
    /// Why the database is unreachable.
    pub unreachable: Option<String>,
}

impl Status {
    /// A public message, if something is wrong.
    pub fn trouble(&self) -> Option<String> {
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
// Exhaustive on purpose: there is a counter for each.
pub enum Failure {
    /// The database did not answer, or returned an error.
    Database,
    /// A row is not a valid rule.
    BadRule,
}

impl Failure {
    /// Each, with its name in metrics.
    pub const ALL: [(Failure, &'static str); 2] = [(Failure::Database, "database"), (Failure::BadRule, "bad_rule")];
}
