//! Reads rules: all of one version, current or past.

use sqlx::{PgConnection, Row as _};

use super::bad_row::BadRow;
use super::error::RulesError;
use super::policy::policy;
use super::row::{Row, record};
use super::set::RuleSet;

/// More than is realistic; a table that grew by mistake must not exhaust memory.
const MAX_RULES: usize = 100_000;

/// The number of the newest version, polled every second.
pub async fn version(connection: &mut PgConnection) -> Result<i64, RulesError> {
    Ok(sqlx::query_scalar("select version from rate_limit_rule_head").fetch_one(connection).await?)
}

/// The current rules, all of one version.
pub async fn read(connection: &mut PgConnection) -> Result<RuleSet, RulesError> {
    let (version, rows) = rows(connection).await?;
    match policy(&rows) {
        Ok(policy) => Ok(RuleSet { version, policy }),
        Err(problems) => Err(RulesError::Bad { version, problems }),
    }
}

/// The current rules, or those of the last valid version, and why.
pub async fn last_good(connection: &mut PgConnection) -> Result<(RuleSet, Option<RulesError>), RulesError> {
    const HOW_FAR: usize = 20;
    let bad = match read(connection).await {
        Ok(good) => return Ok((good, None)),
        Err(error) => error,
    };
    let RulesError::Bad { version: newest, .. } = bad else { return Err(bad) };
    for version in (1..newest).rev().take(HOW_FAR) {
        if let Ok(policy) = policy(&rows_at(connection, version).await?) {
            return Ok((RuleSet { version, policy }, Some(bad)));
        }
    }
    Err(bad)
}

/// One statement, so that version and rows are consistent.
pub async fn rows(connection: &mut PgConnection) -> Result<(i64, Vec<Row>), RulesError> {
    const ROWS: &str = concat!(
        "select head.version, rule.rule_id, ",
        record!(),
        " from rate_limit_rule_head head left join rate_limit_rule rule on true
         order by rule.position, rule.rule_id limit 100001"
    );
    let found = sqlx::query(ROWS).fetch_all(connection).await?;
    let version: i64 = found.first().ok_or(sqlx::Error::RowNotFound)?.try_get("version")?;
    // Without any rule there is one row with only the version.
    let is_rule = |row: &&sqlx::postgres::PgRow| row.try_get::<Option<i64>, _>("rule_id").is_ok_and(|id| id.is_some());
    let rows = found.iter().filter(is_rule).map(Row::read).collect::<Result<Vec<_>, _>>()?;
    bounded(version, rows).map(|rows| (version, rows))
}

/// The rows as of a version: a rule that changed later was what it was before its first change.
pub async fn rows_at(connection: &mut PgConnection, version: i64) -> Result<Vec<Row>, RulesError> {
    const ROWS: &str = concat!(
        "with changed as (
             select distinct on (rule_id) rule_id, before from rate_limit_rule_change
             where version > $1 order by rule_id, change_id
         ), rule as (
             select * from rate_limit_rule where rule_id not in (select rule_id from changed)
             union all
             select was.* from changed, jsonb_populate_record(null::rate_limit_rule, before) was where before is not null
         )
         select ",
        record!(),
        " from rule order by rule.position, rule.rule_id limit 100001"
    );
    let found = sqlx::query(ROWS).bind(version).fetch_all(connection).await?;
    bounded(version, found.iter().map(Row::read).collect::<Result<Vec<_>, _>>()?)
}

fn bounded(version: i64, rows: Vec<Row>) -> Result<Vec<Row>, RulesError> {
    if rows.len() <= MAX_RULES {
        return Ok(rows);
    }
    let problem = format!("there are more than {MAX_RULES} rules; something has filled the table by mistake");
    let problems = vec![BadRow { rule: rows[MAX_RULES].name.clone(), field: "position".into(), problem }];
    Err(RulesError::Bad { version, problems })
}
