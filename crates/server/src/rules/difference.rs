//! The difference between two sets of rules, for people and for programs.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;
use tollkeeper::postgres::editing::{Row, fields};
use tollkeeper::{Policy, Rule, RuleSpec};

/// From one set of rules to another.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// Rules that are new.
    pub(crate) added: Vec<RuleSpec>,
    /// Removed rules.
    pub(crate) removed: Vec<RuleSpec>,
    /// Rules that exist before and after, and differ.
    pub(crate) changed: Vec<ChangedRule>,
    /// Whether rules that stay are in another order.
    pub(crate) reordered: bool,
}

/// What changed about one rule.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ChangedRule {
    pub(crate) name: String,
    pub(crate) fields: Vec<ChangedField>,
}

/// From one value to another; null for a default value.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ChangedField {
    field: String,
    before: Value,
    after: Value,
}

impl Difference {
    /// Compares canonical forms: two spellings of the same limit are not a difference.
    pub(crate) fn between(before: &Policy, after: &Policy) -> Difference {
        let specs = |policy: &Policy| policy.rules().iter().map(|rule| canonical(rule)).collect::<Vec<_>>();
        Difference::of(&specs(before), &specs(after))
    }

    /// For rules in canonical form, as they come from the table.
    pub(super) fn of(before: &[RuleSpec], after: &[RuleSpec]) -> Difference {
        fn by_name(specs: &[RuleSpec]) -> HashMap<&str, usize> {
            specs.iter().enumerate().map(|(index, spec)| (spec.name.as_str(), index)).collect()
        }
        let (places_before, places_after) = (by_name(before), by_name(after));
        let mut difference = Difference::default();
        let mut last = None;
        for spec in after {
            match places_before.get(spec.name.as_str()) {
                None => difference.added.push(spec.clone()),
                Some(place) => {
                    difference.reordered |= last.is_some_and(|last| place < last);
                    last = Some(place);
                    if before[*place] != *spec {
                        difference.changed.extend(ChangedRule::between(&before[*place], spec));
                    }
                }
            }
        }
        let gone = before.iter().filter(|spec| !places_after.contains_key(spec.name.as_str()));
        difference.removed = gone.cloned().collect();
        difference
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Difference::default()
    }

    fn count(&self) -> usize {
        self.added.len() + self.removed.len() + self.changed.len() + usize::from(self.reordered)
    }
}

impl ChangedRule {
    /// What differs, if anything does.
    pub(crate) fn between(before: &RuleSpec, after: &RuleSpec) -> Option<ChangedRule> {
        let (mut old, mut new) = (fields(before), fields(after));
        let names: Vec<String> = old.iter().chain(&new).map(|(name, _)| name.clone()).collect();
        let mut take = |name: &str| {
            let of = |fields: &mut Vec<(String, Value)>| {
                let found = fields.iter().position(|(other, _)| other == name);
                found.map_or(Value::Null, |index| fields.remove(index).1)
            };
            (of(&mut old), of(&mut new))
        };
        let mut changed = Vec::new();
        for field in names {
            let (before, after) = take(&field);
            if before != after {
                changed.push(ChangedField { field, before, after });
            }
        }
        (!changed.is_empty()).then(|| ChangedRule { name: after.name.clone(), fields: changed })
    }
}

/// A rule in canonical form, as it comes back from the table: `6,000/min` and `6000/1min` are the same.
pub(crate) fn canonical(rule: &Rule) -> RuleSpec {
    Row::of(rule, 0).spec().unwrap_or_else(|_| rule.spec().clone())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for spec in &self.removed {
            writeln!(f, "- {}", spec.name)?;
        }
        for spec in &self.added {
            writeln!(f, "+ {}", spec.name)?;
            for (field, value) in fields(spec).into_iter().filter(|(field, _)| field != "name") {
                writeln!(f, "    {field}: {}", shown(&value))?;
            }
        }
        for rule in &self.changed {
            writeln!(f, "~ {}", rule.name)?;
            for ChangedField { field, before, after } in &rule.fields {
                writeln!(f, "    {field}: {} -> {}", shown(before), shown(after))?;
            }
        }
        if self.reordered {
            writeln!(f, "~ the order of rules")?;
        }
        match self.count() {
            0 => writeln!(f, "no differences"),
            1 => writeln!(f, "1 difference"),
            count => writeln!(f, "{count} differences"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "(default)".into(),
        Value::String(text) if !text.chars().any(char::is_control) => text.clone(),
        value => value.to_string(),
    }
}
