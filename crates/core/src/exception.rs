//! An exception for a single key: blocked, allowed, or with a limit of its own, usually for a limited time.

use std::fmt;

use crate::calendar::Calendar;
use crate::limit::Limit;
use crate::named_key::{KeyedBy, NamedKey};
use crate::quota::Quota;
use crate::rule::{Rule, RuleErrors};
use crate::rule_spec::{RuleSpec, Scalar};
use crate::time::Timestamp;

/// An exception for one key of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The rule's name; `None` means every rule that has this key.
    pub rule: Option<String>,
    /// The key's text, as in the row of a verdict.
    pub key: String,
    /// Which attributes the key is for, where the rule's key has alternatives.
    pub by: KeyedBy,
    /// What it is.
    pub kind: ExceptionKind,
    /// In force from then on.
    pub since: Timestamp,
    /// No longer in force from then on.
    pub until: Option<Timestamp>,
    /// Why, for people.
    pub reason: Option<String>,
    /// Who made it, for people.
    pub made_by: Option<String>,
    /// The grant that this one replaced, and since when it was in force: tokens missing under it stay missing.
    pub former: Option<(Grant, Timestamp)>,
}

/// What an exception does.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive on purpose: code that shows exceptions must have a word for each.
pub enum ExceptionKind {
    /// The rule denies every request of this key.
    Block,
    /// The rule does not apply to this key: nothing is charged.
    Allow,
    /// The key has another limit.
    Grant(Grant),
}

/// A limit for a single key, as in a rules file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Such as `1000/min`.
    pub limit: String,
    /// The burst, if it is not the count of the limit.
    pub burst: Option<u32>,
}

impl ExceptionKind {
    /// `block`, `allow` or `grant`.
    pub const fn name(&self) -> &'static str {
        match self {
            ExceptionKind::Block => "block",
            ExceptionKind::Allow => "allow",
            ExceptionKind::Grant(_) => "grant",
        }
    }

    /// Whether it decides alone, without asking the store.
    pub const fn settles(&self) -> bool {
        matches!(self, ExceptionKind::Block | ExceptionKind::Allow)
    }
}

/// `1000/min burst 200`.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.limit)?;
        self.burst.map_or(Ok(()), |burst| write!(f, " burst {burst}"))
    }
}

impl Grant {
    /// The quota it gives a rule, or why it does not fit that rule.
    pub fn quota(&self, rule: &Rule) -> Result<Quota, RuleErrors> {
        let limit = Scalar::Text(self.limit.clone());
        let burst = self.burst.map(|burst| Scalar::Number(burst.into()));
        let mut spec = RuleSpec { limit, burst, ..rule.spec().clone() };
        // A grant in another unit has windows of its own.
        let unit = self.limit.parse::<Limit>().ok().and_then(|limit| limit.calendar);
        if unit != rule.quota().calendar().map(Calendar::unit) {
            spec.anchor_day = None;
            spec.timezone = spec.timezone.filter(|_| unit.is_some());
        }
        Ok(spec.build()?.quota)
    }
}

impl Exception {
    /// For a key of this rule, or with `*` of every rule that has the key; it never ends.
    pub fn new(rule: &str, key: impl Into<NamedKey>, kind: ExceptionKind) -> Exception {
        let rule = Some(rule).filter(|rule| *rule != "*").map(str::to_string);
        let (since, NamedKey { text: key, by }) = (Timestamp::default(), key.into());
        Exception { rule, key, by, kind, since, until: None, reason: None, made_by: None, former: None }
    }

    /// The same, ending then.
    #[must_use]
    pub fn until(self, until: Timestamp) -> Exception {
        Exception { until: Some(until), ..self }
    }

    /// The same, with a reason.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Exception {
        Exception { reason: Some(reason.into()), ..self }
    }

    /// The same, with its author.
    #[must_use]
    pub fn made_by(self, who: impl Into<String>) -> Exception {
        Exception { made_by: Some(who.into()), ..self }
    }

    /// The key, as it was named.
    pub fn named_key(&self) -> NamedKey {
        NamedKey { text: self.key.clone(), by: self.by.clone() }
    }

    /// Whether both are for the same key of the same rule, so that one replaces the other.
    pub fn is_same(&self, other: &Exception) -> bool {
        (&self.rule, &self.key, &self.by) == (&other.rule, &other.key, &other.by)
    }

    /// Whether it has ended at `now`.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}
