//! A row of `rate_limit_rule` and the rule that it means, in both directions.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tollkeeper::{Algorithm, Limit, Rule, RuleSpec, Span};
use tollkeeper_core::{CostSpec, DenySpec, MatchValue, OneOrMany, Scalar, parse_count};

use super::bad_row::BadRow;
use crate::strict;

/// The columns that a [`Row`] is read from, of a table or record named `rule`.
macro_rules! columns {
    () => {
        "rule.name, rule.position, rule.key_pattern, rule.scope, rule.rate,
         (extract(epoch from rule.period) * 1000000)::bigint as period_us, rule.burst_capacity, rule.algorithm,
         rule.plan, rule.match_conditions, rule.cost, rule.mode, rule.on_store_failure, rule.options, rule.is_active,
         rule.description"
    };
}
pub(super) use columns;

/// What a row says, beside its number and times. It serializes as the record that the table takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) position: i64,
    key_pattern: String,
    scope: Option<String>,
    rate: i64,
    #[serde(serialize_with = "interval")]
    period: Option<Span>,
    burst_capacity: Option<i64>,
    algorithm: String,
    plan: Option<String>,
    match_conditions: Value,
    cost: Value,
    mode: String,
    on_store_failure: String,
    options: Value,
    is_active: bool,
    description: Option<String>,
}

/// What few rules have, in one column.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<Scalar>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deny: Option<DenySpec>,
}

impl Row {
    /// The columns of a valid rule.
    pub(super) fn of(rule: &Rule, position: i64) -> Row {
        let spec = rule.spec();
        let limit: Limit = text(&spec.limit).parse().expect("the limit of a valid rule");
        let burst = spec.burst.as_ref().map(|burst| parse_count(&text(burst)).expect("the burst of a valid rule"));
        let mut when = spec.when.clone();
        let plan = is_plain(when.get("plan")).map(str::to_string);
        if plan.is_some() {
            when.remove("plan");
        }
        let options = Options { hold: spec.hold.clone(), lease: spec.lease.clone(), deny: spec.deny.clone() };
        Row {
            name: spec.name.clone(),
            position,
            key_pattern: spec.key.clone(),
            scope: spec.scope.clone(),
            rate: limit.count.into(),
            period: limit.period,
            burst_capacity: burst.map(i64::from),
            algorithm: spec.algorithm.name().into(),
            plan,
            match_conditions: json(&when),
            cost: json(&spec.cost),
            mode: word(&spec.mode),
            on_store_failure: word(&spec.on_store_failure),
            options: json(&options),
            is_active: spec.active,
            description: spec.description.clone(),
        }
    }

    /// Reads [`columns`].
    pub(super) fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
        let period_us: Option<i64> = row.try_get("period_us")?;
        Ok(Row {
            name: row.try_get("name")?,
            position: row.try_get("position")?,
            key_pattern: row.try_get("key_pattern")?,
            scope: row.try_get("scope")?,
            rate: row.try_get("rate")?,
            period: period_us.map(|micros| Span::from_micros(micros.unsigned_abs())),
            burst_capacity: row.try_get("burst_capacity")?,
            algorithm: row.try_get("algorithm")?,
            plan: row.try_get("plan")?,
            match_conditions: row.try_get("match_conditions")?,
            cost: row.try_get("cost")?,
            mode: row.try_get("mode")?,
            on_store_failure: row.try_get("on_store_failure")?,
            options: row.try_get("options")?,
            is_active: row.try_get("is_active")?,
            description: row.try_get("description")?,
        })
    }

    /// What the row says, as in a rules file. Whether that is a rule is for [`Rule::new`] to tell.
    pub(super) fn spec(&self) -> Result<RuleSpec, BadRow> {
        let mut when: BTreeMap<String, OneOrMany> = self.value("match_conditions", &self.match_conditions)?;
        if let Some(plan) = &self.plan
            && when.insert("plan".into(), OneOrMany::One(MatchValue::Text(plan.clone()))).is_some()
        {
            return Err(self.bad("plan", "is also in match_conditions; keep one of them"));
        }
        let Options { hold, lease, deny } = self.value("options", &self.options)?;
        let cost: CostSpec = self.value("cost", &self.cost)?;
        let algorithm: Algorithm = self.value("algorithm", &Value::from(self.algorithm.as_str()))?;
        Ok(RuleSpec {
            name: self.name.clone(),
            scope: self.scope.clone(),
            when,
            key: self.key_pattern.clone(),
            limit: self.limit(algorithm)?,
            burst: self.burst_capacity.map(scalar),
            algorithm,
            hold,
            lease,
            cost,
            mode: self.value("mode", &Value::from(self.mode.as_str()))?,
            on_store_failure: self.value("on_store_failure", &Value::from(self.on_store_failure.as_str()))?,
            deny,
            active: self.is_active,
            description: self.description.clone(),
        })
    }

    fn limit(&self, algorithm: Algorithm) -> Result<Scalar, BadRow> {
        match self.period {
            None if algorithm == Algorithm::Concurrency => Ok(scalar(self.rate)),
            None => Err(self.bad("period", "is missing; say per how long, such as '1 minute'")),
            Some(period) if period == Span::ZERO || !period.as_micros().is_multiple_of(1_000) => {
                Err(self.bad("period", &format!("{period} is not a whole number of milliseconds; use a longer one")))
            }
            Some(period) => {
                let period = period.to_string();
                // `10/s` rather than `10/1s`, and days by the name that everybody uses.
                let period =
                    period.strip_prefix('1').filter(|unit| !unit.starts_with(char::is_numeric)).unwrap_or(&period);
                let period = period.strip_suffix('d').map_or(period.to_string(), |days| format!("{days}day"));
                Ok(Scalar::Text(format!("{}/{period}", self.rate)))
            }
        }
    }

    fn value<T: DeserializeOwned>(&self, column: &str, value: &Value) -> Result<T, BadRow> {
        strict::value(value.clone(), "").map_err(|error| {
            let field = match error.field.as_str() {
                "" => column.to_string(),
                path if path.starts_with('[') => format!("{column}{path}"),
                path => format!("{column}.{path}"),
            };
            self.bad(&field, &error.problem)
        })
    }

    fn bad(&self, field: &str, problem: &str) -> BadRow {
        BadRow { rule: self.name.clone(), field: field.into(), problem: problem.into() }
    }
}

/// One plain value, as the column `plan` holds it.
pub(super) fn is_plain(value: Option<&OneOrMany>) -> Option<&str> {
    match value {
        Some(OneOrMany::One(MatchValue::Text(text))) => Some(text),
        _ => None,
    }
}

fn text(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Number(number) => number.to_string(),
        Scalar::Text(text) => text.clone(),
    }
}

fn scalar(number: i64) -> Scalar {
    u64::try_from(number).map_or_else(|_| Scalar::Text(number.to_string()), Scalar::Number)
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a rule is always JSON")
}

/// The name of an enum's value.
fn word(value: &impl Serialize) -> String {
    json(value).as_str().unwrap_or_default().to_string()
}

/// A span as Postgres reads an interval, in units that people like to see in the table.
fn interval<S: serde::Serializer>(period: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000_000, "days"), (3_600_000_000, "hours"), (60_000_000, "minutes"), (1_000_000, "seconds")];
    let Some(micros) = period.map(Span::as_micros) else { return serializer.serialize_none() };
    let unit = UNITS.iter().find(|(size, _)| micros.is_multiple_of(*size));
    let (size, unit) = unit.copied().unwrap_or((1, "microseconds"));
    serializer.collect_str(&format_args!("{} {unit}", micros / size))
}

#[cfg(test)]
mod tests;
