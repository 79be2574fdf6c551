//! Postgres: the tables of the rules, which the library knows, and our own beside them.

pub(crate) use tollkeeper::postgres::editing::{DEADLINE, within};
pub(crate) use tollkeeper::postgres::{Database, DatabaseError};

use tollkeeper::postgres::editing::{RULES, Step};

/// All tables, in the order of their making. What was released is never changed: add a file.
const STEPS: [Step; 9] = [
    RULES,
    (2, "violations", include_str!("../migrations/0002_violations.sql")),
    (3, "actions", include_str!("../migrations/0003_actions.sql")),
    (4, "exceptions", include_str!("../migrations/0004_exceptions.sql")),
    (5, "audit size", include_str!("../migrations/0005_audit_size.sql")),
    (6, "kept exceptions", include_str!("../migrations/0006_kept_exceptions.sql")),
    (7, "annotate", include_str!("../migrations/0007_annotate.sql")),
    (8, "quota", include_str!("../migrations/0008_quota.sql")),
    (9, "violation mode", include_str!("../migrations/0009_violation_mode.sql")),
];

/// Understands a URL such as `postgres://tollkeeper@db.internal/limits`, or says what is wrong with it. Nothing is connected
/// yet.
pub(crate) fn database(url: &str) -> Result<Database, String> {
    Ok(Database::new(url)?.with_steps(&STEPS))
}
