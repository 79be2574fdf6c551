//! All rows as rules, or everything that is wrong with them.

use tollkeeper::{Policy, RuleError, RuleSpec};

use super::bad_row::BadRow;
use super::row::{Row, is_plain};

/// All the rows as rules, or everything that is wrong with them.
pub(super) fn policy(rows: &[Row]) -> Result<Policy, Vec<BadRow>> {
    let (mut specs, mut bad) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match row.spec() {
            Ok(spec) => specs.push(spec),
            Err(problem) => bad.push(problem),
        }
    }
    let wrong = |(spec, error): (&RuleSpec, RuleError)| BadRow {
        rule: spec.name.clone(),
        field: column(&error.field, spec),
        problem: error.problem,
    };
    if bad.is_empty() {
        match Policy::new(specs.iter().cloned()) {
            Ok(policy) => return Ok(policy),
            Err(errors) => bad.extend(errors.into_iter().map(|error| wrong((&specs[error.index], error.error)))),
        }
    } else {
        // Whoever mends one rule wants to know of all.
        let errors = specs.iter().filter_map(|spec| Some((spec, spec.clone().build().err()?)));
        bad.extend(errors.flat_map(|(spec, errors)| errors.into_iter().map(move |error| (spec, error))).map(wrong));
    }
    Err(bad)
}

/// The column that holds a field of a rules file.
fn column(field: &str, spec: &RuleSpec) -> String {
    let (first, rest) = field.split_at(field.find(['.', '[']).unwrap_or(field.len()));
    match first {
        "key" => "key_pattern".into(),
        "limit" => "rate".into(),
        "period" => "period".into(),
        "burst" => "burst_capacity".into(),
        "when" if rest == ".plan" && is_plain(spec.when.get("plan")).is_some() => "plan".into(),
        "when" => format!("match_conditions{rest}"),
        "hold" | "lease" | "deny" => format!("options.{field}"),
        _ => field.to_string(),
    }
}
