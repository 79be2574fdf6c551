//! A row of `rate_limit_rule`, converted to and from a rule.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use tollkeeper_core::{
    Algorithm, CalendarUnit, Limit, MatchValue, OneOrMany, Rule, RuleSpec, Scalar, Span, parse_count,
};

use super::bad_row::BadRow;
use super::fields::fields;
use crate::strict;

/// How a [`Row`] is read: a row of a table or record named `rule`, as JSON. Postgres can write an interval in several
/// ways, so the period is in microseconds.
macro_rules! record {
    () => {
        "to_jsonb(rule) || jsonb_build_object('period', (extract(epoch from rule.period) * 1000000)::bigint) as record"
    };
}
pub(super) use record;

/// The columns of a rule. It serializes as the record for the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The rule's name.
    pub name: String,
    /// Rules are ordered by this.
    pub position: i64,
    key_pattern: String,
    scope: Option<String>,
    rate: i64,
    #[serde(serialize_with = "interval", deserialize_with = "micros")]
    period: Option<Span>,
    burst_capacity: Option<i64>,
    algorithm: String,
    plan: Option<String>,
    match_conditions: Value,
    cost: Value,
    mode: String,
    on_store_failure: String,
    /// Every field without a column of its own, by its name in a rules file.
    options: Value,
    is_active: bool,
    description: Option<String>,
}

/// The option that says that windows are those of the calendar: `week`, `month` or `year`. Part of `limit` in a rules
/// file.
const CALENDAR: &str = "calendar";

/// The column of a field of a rules file, if it has one.
fn column(field: &str) -> Option<&'static str> {
    Some(match field {
        "name" => "name",
        "scope" => "scope",
        "when" => "match_conditions",
        "key" => "key_pattern",
        "limit" => "rate",
        // Not a field, but errors about the numbers of a limit name it.
        "period" => "period",
        "burst" => "burst_capacity",
        "algorithm" => "algorithm",
        "cost" => "cost",
        "mode" => "mode",
        "on_store_failure" => "on_store_failure",
        "active" => "is_active",
        "description" => "description",
        _ => return None,
    })
}

impl Row {
    /// The columns of a valid rule.
    pub fn of(rule: &Rule, position: i64) -> Row {
        let spec = rule.spec();
        let limit: Limit = text(&spec.limit).parse().expect("the limit of a valid rule");
        let burst = spec.burst.as_ref().map(|burst| parse_count(&text(burst)).expect("the burst of a valid rule"));
        let mut when = spec.when.clone();
        let plan = match when.get("plan") {
            Some(OneOrMany::One(MatchValue::Text(plan))) => Some(plan.clone()),
            _ => None,
        };
        if plan.is_some() {
            when.remove("plan");
        }
        let mut options: Map<String, Value> =
            fields(spec).into_iter().filter(|(field, _)| column(field).is_none()).collect();
        // A period of 30 days is not a month.
        if let Some(calendar) = rule.quota().calendar().filter(|calendar| calendar.unit() != CalendarUnit::Day) {
            options.insert(CALENDAR.into(), calendar.unit().name().into());
        }
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
            options: options.into(),
            is_active: spec.active,
            description: spec.description.clone(),
        }
    }

    /// Reads a record, as the database returns it.
    pub fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
        row.try_get("record").map(|Json(row)| row)
    }

    /// The row as in a rules file. [`RuleSpec::build`] says whether it is a valid rule.
    pub fn spec(&self) -> Result<RuleSpec, BadRow> {
        let mut when = self.match_conditions.clone();
        if let (Some(plan), Some(conditions)) = (&self.plan, when.as_object_mut())
            && conditions.insert("plan".into(), plan.as_str().into()).is_some()
        {
            return Err(self.bad("plan", "is also in match_conditions; keep one of them"));
        }
        let Value::Object(mut fields) = self.options.clone() else {
            return Err(self.bad("options", "must be an object"));
        };
        let calendar = fields.remove(CALENDAR);
        if let Some((field, column)) = fields.keys().find_map(|field| Some((field, column(field)?))) {
            return Err(self.bad(&format!("options.{field}"), &format!("belongs in the column {column}")));
        }
        let own = [
            ("name", self.name.as_str().into()),
            ("scope", json(&self.scope)),
            ("when", when),
            ("key", self.key_pattern.as_str().into()),
            ("limit", self.limit(calendar.as_ref())?),
            ("burst", json(&self.burst_capacity)),
            ("algorithm", self.algorithm.as_str().into()),
            ("cost", self.cost.clone()),
            ("mode", self.mode.as_str().into()),
            ("on_store_failure", self.on_store_failure.as_str().into()),
            ("active", self.is_active.into()),
            ("description", json(&self.description)),
        ];
        fields.extend(own.map(|(field, value)| (field.to_string(), value)));
        strict::value(fields.into(), "").map_err(|error| self.bad(&self.place(&error.field), &error.problem))
    }

    /// Where a field of a rules file is in the table.
    pub fn place(&self, field: &str) -> String {
        let (first, rest) = field.split_at(field.find(['.', '[']).unwrap_or(field.len()));
        match column(first) {
            Some("match_conditions") if rest == ".plan" && self.plan.is_some() => "plan".into(),
            Some(column) => format!("{column}{rest}"),
            None => format!("options.{field}"),
        }
    }

    fn limit(&self, calendar: Option<&Value>) -> Result<Value, BadRow> {
        if let Some(calendar) = calendar {
            let units = [CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];
            let Some(unit) = units.into_iter().find(|unit| calendar == unit.name()) else {
                return Err(self.bad("options.calendar", &format!("{calendar} is not \"week\", \"month\" or \"year\"")));
            };
            if self.period != Some(unit.usual_length()) {
                let days = unit.usual_length();
                let problem =
                    format!("is not {days}, which stands for a {unit}; remove options.calendar for other windows");
                return Err(self.bad("period", &problem));
            }
            return Ok(format!("{}/{unit}", self.rate).into());
        }
        match self.period {
            None if self.algorithm == Algorithm::Concurrency.name() => Ok(self.rate.into()),
            None => Err(self.bad("period", "is missing; write a period such as '1 minute'")),
            Some(period) if period == Span::ZERO || !period.as_micros().is_multiple_of(1_000) => {
                Err(self.bad("period", &format!("{period} is not a whole number of milliseconds; use a longer one")))
            }
            Some(period) => {
                let period = period.to_string();
                // `10/s` rather than `10/1s`, and days by their usual name.
                let period =
                    period.strip_prefix('1').filter(|unit| !unit.starts_with(char::is_numeric)).unwrap_or(&period);
                let period = period.strip_suffix('d').map_or(period.to_string(), |days| format!("{days}day"));
                Ok(format!("{}/{period}", self.rate).into())
            }
        }
    }

    fn bad(&self, field: &str, problem: &str) -> BadRow {
        BadRow { rule: self.name.clone(), field: field.into(), problem: problem.into() }
    }
}

fn text(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Number(number) => number.to_string(),
        Scalar::Text(text) => text.clone(),
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a rule is always JSON")
}

/// The name of an enum's value.
fn word(value: &impl Serialize) -> String {
    json(value).as_str().unwrap_or_default().to_string()
}

/// A span as a Postgres interval, in units that are readable in the table.
fn interval<S: serde::Serializer>(period: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000_000, "days"), (3_600_000_000, "hours"), (60_000_000, "minutes"), (1_000_000, "seconds")];
    let Some(micros) = period.map(Span::as_micros) else { return serializer.serialize_none() };
    let unit = UNITS.iter().find(|(size, _)| micros.is_multiple_of(*size));
    let (size, unit) = unit.copied().unwrap_or((1, "microseconds"));
    serializer.collect_str(&format_args!("{} {unit}", micros / size))
}

/// The period of a [`record`].
fn micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    let micros: Option<i64> = Deserialize::deserialize(deserializer)?;
    Ok(micros.map(|micros| Span::from_micros(micros.unsigned_abs())))
}

#[cfg(test)]
mod tests;
