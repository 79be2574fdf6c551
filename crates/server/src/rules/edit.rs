//! Changes rules: one transaction, one version, and one path for every kind of change.

use std::collections::HashMap;

use sqlx::{Connection as _, PgConnection};
use tollkeeper::postgres::RulesError;
use tollkeeper::postgres::editing::{Row, policy, rows, rows_at, version};
use tollkeeper::{Policy, Rule, RuleSpec};

use super::difference::Difference;

/// Who changes rules, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) by: String,
    pub(crate) message: Option<String>,
    /// The version that the editor has seen. If the rules have another one, the change is refused.
    pub(crate) seen: Option<i64>,
    /// Only report what would be done.
    pub(crate) dry_run: bool,
}

/// A requested change.
#[derive(Debug)]
pub(crate) enum Change {
    /// Replace all rules.
    Apply(Policy),
    /// Add a rule whose name is unused.
    Create(Box<Rule>),
    /// Add or replace a rule.
    Put(Box<Rule>),
    /// Remove a rule.
    Delete(String),
    /// Restore all rules of a version.
    Rollback(i64),
}

/// The result of a change.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The version after it; unchanged if there was nothing to do.
    pub(crate) version: i64,
    /// Whether there was anything to do, and it was done.
    pub(crate) changed: bool,
    pub(crate) difference: Difference,
}

pub(super) async fn make(connection: &mut PgConnection, edit: &Edit, change: Change) -> Result<Edited, RulesError> {
    let action = change.name();
    let mut transaction = connection.begin().await?;
    sqlx::query(
        "select set_config('tollkeeper.changed_by', $1, true), set_config('tollkeeper.action', $2, true),
         set_config('tollkeeper.message', $3, true)",
    )
    .bind(&edit.by)
    .bind(action)
    .bind(edit.message.as_deref().unwrap_or_default())
    .execute(&mut *transaction)
    .await?;
    // Serializes writers; readers are not blocked.
    sqlx::query("lock table rate_limit_rule in share row exclusive mode").execute(&mut *transaction).await?;
    let (now, before) = rows(&mut transaction).await?;
    if let Some(seen) = edit.seen.filter(|seen| *seen != now) {
        return Err(RulesError::Changed { seen, now });
    }
    let after = match change {
        Change::Rollback(asked) if !(1..=now).contains(&asked) => {
            return Err(RulesError::NoVersion { asked, newest: now });
        }
        Change::Rollback(asked) => {
            let rows = rows_at(&mut transaction, asked).await?;
            policy(&rows).map_err(|problems| RulesError::Bad { version: asked, problems })?;
            rows
        }
        change => change.of(&before)?,
    };
    let difference = Difference::of(&specs(&before), &specs(&after));
    if edit.dry_run || !write(&mut transaction, &before, &after).await? {
        return Ok(Edited { version: now, changed: false, difference });
    }
    let version = version(&mut transaction).await?;
    transaction.commit().await?;
    Ok(Edited { version, changed: true, difference })
}

/// Rows that are not valid rules are not compared; the changed rules are valid.
fn specs(rows: &[Row]) -> Vec<RuleSpec> {
    rows.iter().filter_map(|row| row.spec().ok()).collect()
}

impl Change {
    fn name(&self) -> &'static str {
        match self {
            Change::Apply(_) => "apply",
            Change::Create(_) => "create",
            Change::Put(_) => "put",
            Change::Delete(_) => "delete",
            Change::Rollback(_) => "rollback",
        }
    }

    /// All rows after the change.
    fn of(self, before: &[Row]) -> Result<Vec<Row>, RulesError> {
        let place = |name: &str| before.iter().position(|row| row.name == name);
        let mut after = before.to_vec();
        match self {
            Change::Apply(policy) => {
                after = in_order(&policy, before);
                after.iter().try_for_each(without_nul)?;
            }
            Change::Create(rule) | Change::Put(rule) if place(rule.name()).is_none() => {
                let last = before.last().map_or(0, |row| row.position);
                after.push(Row::of(&rule, last.saturating_add(1)));
                after.last().map_or(Ok(()), without_nul)?;
            }
            Change::Create(rule) => return Err(RulesError::Exists(rule.name().to_string())),
            Change::Put(rule) => {
                let place = place(rule.name()).unwrap_or_default();
                after[place] = Row::of(&rule, before[place].position);
                without_nul(&after[place])?;
            }
            Change::Delete(name) => match place(&name) {
                Some(place) => drop(after.remove(place)),
                None => return Err(RulesError::Missing(name)),
            },
            Change::Rollback(_) => {}
        }
        Ok(after)
    }
}

/// The rows of these rules. Existing rows keep their positions if the order allows, so that the history shows real
/// changes rather than renumbering.
fn in_order(policy: &Policy, before: &[Row]) -> Vec<Row> {
    let known: HashMap<&str, i64> = before.iter().map(|row| (row.name.as_str(), row.position)).collect();
    let mut last = 0i64;
    let kept: Option<Vec<i64>> = policy
        .rules()
        .iter()
        .map(|rule| {
            let position = known.get(rule.name()).copied().unwrap_or(last.saturating_add(1));
            (position > last).then(|| std::mem::replace(&mut last, position)).map(|_| position)
        })
        .collect();
    let positions = kept.unwrap_or_else(|| (1..).take(policy.rules().len()).collect());
    policy.rules().iter().zip(positions).map(|(rule, position)| Row::of(rule, position)).collect()
}

fn without_nul(row: &Row) -> Result<(), RulesError> {
    let value = serde_json::to_value(row).unwrap_or_default();
    let has_nul = value.to_string().contains("\\u0000");
    if !has_nul {
        return Ok(());
    }
    let columns = value.as_object().into_iter().flatten();
    let field =
        columns.filter(|(_, value)| value.to_string().contains("\\u0000")).map(|(column, _)| column.clone()).next();
    Err(RulesError::Nul { rule: row.name.clone(), field: field.unwrap_or_default() })
}

/// Updates the table; returns whether there was anything to do.
async fn write(connection: &mut PgConnection, before: &[Row], after: &[Row]) -> Result<bool, RulesError> {
    let known: HashMap<&str, &Row> = before.iter().map(|row| (row.name.as_str(), row)).collect();
    let wanted: HashMap<&str, &Row> = after.iter().map(|row| (row.name.as_str(), row)).collect();
    let gone: Vec<&str> =
        before.iter().map(|row| row.name.as_str()).filter(|name| !wanted.contains_key(name)).collect();
    let (old, new): (Vec<&Row>, Vec<&Row>) = after.iter().partition(|row| known.contains_key(row.name.as_str()));
    let changed: Vec<&Row> = old.into_iter().filter(|row| known[row.name.as_str()] != *row).collect();
    if gone.is_empty() && changed.is_empty() && new.is_empty() {
        return Ok(false);
    }
    let json = |rows: &[&Row]| serde_json::to_value(rows).unwrap_or_default();
    sqlx::query("delete from rate_limit_rule where name = any($1)").bind(gone).execute(&mut *connection).await?;
    sqlx::query(
        "update rate_limit_rule rule set position = new.position, key_pattern = new.key_pattern, scope = new.scope,
         rate = new.rate, period = new.period, burst_capacity = new.burst_capacity, algorithm = new.algorithm,
         plan = new.plan, match_conditions = new.match_conditions, cost = new.cost, mode = new.mode,
         on_store_failure = new.on_store_failure, options = new.options, is_active = new.is_active,
         description = new.description
         from jsonb_populate_recordset(null::rate_limit_rule, $1) new where rule.name = new.name",
    )
    .bind(json(&changed))
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "insert into rate_limit_rule (name, position, key_pattern, scope, rate, period, burst_capacity, algorithm, plan,
         match_conditions, cost, mode, on_store_failure, options, is_active, description)
         select name, position, key_pattern, scope, rate, period, burst_capacity, algorithm, plan, match_conditions, cost,
         mode, on_store_failure, options, is_active, description
         from jsonb_populate_recordset(null::rate_limit_rule, $1)",
    )
    .bind(json(&new))
    .execute(connection)
    .await?;
    Ok(true)
}
