//! All rows as rules, or all errors in them.

use tollkeeper_core::{Policy, RuleError};

use super::bad_row::BadRow;
use super::row::Row;

/// All rows as rules, or all errors in them.
pub fn policy(rows: &[Row]) -> Result<Policy, Vec<BadRow>> {
    let (mut specs, mut bad) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match row.spec() {
            Ok(spec) => specs.push((row, spec)),
            Err(problem) => bad.push(problem),
        }
    }
    let wrong = |row: &Row, error: RuleError| BadRow {
        rule: row.name.clone(),
        field: row.place(&error.field),
        problem: error.problem,
    };
    if bad.is_empty() {
        match Policy::new(specs.iter().map(|(_, spec)| spec.clone())) {
            Ok(policy) => return Ok(policy),
            Err(errors) => bad.extend(errors.into_iter().map(|error| wrong(specs[error.index].0, error.error))),
        }
    } else {
        // Report the errors of all rules at once.
        for (row, spec) in specs {
            let errors = spec.build().err().into_iter().flatten();
            bad.extend(errors.map(|error| wrong(row, error)));
        }
    }
    Err(bad)
}
