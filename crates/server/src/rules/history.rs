//! Every version of the rules: who made it, when, why, and what it did.

use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, Row as _};
use tollkeeper::Timestamp;
use tollkeeper::postgres::RulesError;

use crate::moment::Moment;

/// One version, and what it did.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Version {
    /// Counted from 1, without gaps.
    pub(crate) version: i64,
    /// When.
    pub(crate) changed_at: Moment,
    /// Who.
    pub(crate) changed_by: String,
    /// `apply`, `create`, `put`, `delete`, `rollback`, or `sql` for direct writes to the table.
    pub(crate) action: String,
    /// Why, if a reason was given.
    pub(crate) message: Option<String>,
    /// What it did to each rule.
    pub(crate) changes: Vec<VersionedChange>,
    /// How many more changes it made: an answer is bounded.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: i64,
}

/// What a version did to one rule: created, changed or removed it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "RuleChange")]
pub(crate) struct VersionedChange {
    /// The rule's name.
    pub(crate) name: String,
    /// The row before, by column; null when there was none.
    pub(crate) before: Option<Value>,
    /// The row after, by column; null when it is gone.
    pub(crate) after: Option<Value>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Versions, newest first: at most `limit` of those before `before`.
pub(super) async fn read(
    connection: &mut PgConnection,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Version>, RulesError> {
    const VERSIONS: &str = "select version, changed_by, action, message,
        (select count(*) from rate_limit_rule_change change where change.version = made.version) as changes,
        (extract(epoch from changed_at) * 1000000)::bigint as changed_us
        from rate_limit_rule_version made where $1::bigint is null or version < $1 order by version desc limit $2";
    const CHANGES: &str = "select version, name, before, after from rate_limit_rule_change
        where version = any($1) order by version desc, change_id limit 5000";
    let found = sqlx::query(VERSIONS).bind(before).bind(limit).fetch_all(&mut *connection).await?;
    let mut versions = Vec::with_capacity(found.len());
    for row in &found {
        versions.push(Version {
            version: row.try_get("version")?,
            changed_at: Moment(Timestamp::from_micros(row.try_get::<i64, _>("changed_us")?.unsigned_abs())),
            changed_by: row.try_get("changed_by")?,
            action: row.try_get("action")?,
            message: row.try_get("message")?,
            changes: Vec::new(),
            left_out: row.try_get("changes")?,
        });
    }
    let numbers: Vec<i64> = versions.iter().map(|version| version.version).collect();
    for row in sqlx::query(CHANGES).bind(numbers).fetch_all(connection).await? {
        let number: i64 = row.try_get("version")?;
        if let Some(version) = versions.iter_mut().find(|version| version.version == number) {
            let (name, before, after) = (row.try_get("name")?, row.try_get("before")?, row.try_get("after")?);
            version.changes.push(VersionedChange { name, before, after });
            version.left_out -= 1;
        }
    }
    Ok(versions)
}
