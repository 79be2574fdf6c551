//! Decisions by rule. A decision finds its rule's counters by the rule's address in memory: no lock, no hashing of
//! labels, no allocation.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollkeeper::{Enforcement, Policy, Row, Rule, Source};

use super::family::Family;
use super::histogram::{Histogram, RATIO, count_each};

/// The counters of each rule of one policy.
#[derive(Debug, Default)]
pub(super) struct RuleTable {
    /// Kept alive, so that no other rule can be allocated at an address in this table.
    policy: Option<Arc<Policy>>,
    pub(super) in_order: Vec<Arc<RuleCounters>>,
    by_address: Vec<(usize, Arc<RuleCounters>)>,
}

impl RuleTable {
    /// For the rules of a policy; counters of rules with the same name are kept.
    pub(super) fn new(policy: Arc<Policy>, before: &RuleTable) -> RuleTable {
        let known: HashMap<&str, &Arc<RuleCounters>> =
            before.in_order.iter().map(|counters| (counters.rule.name(), counters)).collect();
        let mut in_order = Vec::with_capacity(policy.rules().len());
        let mut by_address = Vec::with_capacity(policy.rules().len());
        for rule in policy.rules() {
            let counters = match known.get(rule.name()) {
                Some(counters) => Arc::clone(counters),
                None => Arc::new(RuleCounters::new(rule.clone())),
            };
            by_address.push((address(rule), counters.clone()));
            in_order.push(counters);
        }
        by_address.sort_unstable_by_key(|(address, _)| *address);
        RuleTable { policy: Some(policy), in_order, by_address }
    }

    pub(super) fn is_of(&self, policy: &Arc<Policy>) -> bool {
        self.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, policy))
    }

    pub(super) fn find(&self, rule: &Arc<Rule>) -> Option<&RuleCounters> {
        let found = self.by_address.binary_search_by_key(&address(rule), |(address, _)| *address).ok()?;
        Some(&self.by_address[found].1)
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&RuleCounters> {
        self.in_order.iter().find(|counters| counters.rule.name() == name).map(|counters| &**counters)
    }
}

fn address(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule).addr()
}

/// How often a rule let a request pass, denied it, would have denied it if its mode were not `shadow`, or annotated it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) shadow_denied: u64,
    pub(crate) annotated: u64,
}

impl Outcomes {
    pub(crate) fn total(&self) -> u64 {
        self.allowed + self.denied + self.shadow_denied + self.annotated
    }

    /// The difference to an earlier count.
    pub(crate) fn since(self, before: Outcomes) -> Outcomes {
        Outcomes {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow_denied: self.shadow_denied.saturating_sub(before.shadow_denied),
            annotated: self.annotated.saturating_sub(before.annotated),
        }
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Outcomes) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
        self.annotated += other.annotated;
    }
}

/// What is counted of one rule.
#[derive(Debug)]
pub(super) struct RuleCounters {
    pub(super) rule: Arc<Rule>,
    /// By outcome, then by source.
    decisions: [[AtomicU64; Source::ALL.len()]; OUTCOMES.len()],
    remaining: Histogram,
}

const OUTCOMES: [&str; 4] = ["allowed", "denied", "shadow_denied", "annotated"];

/// The outcome of a rule that does not let a request pass.
fn denial_of(rule: &Rule) -> usize {
    match rule.mode() {
        Enforcement::Shadow => 2,
        Enforcement::Annotate => 3,
        _ => 1,
    }
}

impl RuleCounters {
    pub(super) fn new(rule: Arc<Rule>) -> RuleCounters {
        RuleCounters { rule, decisions: Default::default(), remaining: Histogram::new(RATIO) }
    }

    /// Counts decisions of this rule. A rule that was not asked has decided nothing.
    pub(super) fn count(&self, rows: &[Row]) {
        let asked = || rows.iter().filter(|row| !row.is_unasked());
        count_each(asked().map(|row| {
            let outcome = if row.decision.is_allowed() { 0 } else { denial_of(&row.charge.rule) };
            &self.decisions[outcome][row.source as usize]
        }));
        // What is left of a key is unknown when an exception decides without the store.
        let known = asked().filter(|row| row.charge.exception().is_none_or(|exception| !exception.kind.settles()));
        self.remaining.observe_each(
            known.map(|Row { decision, .. }| {
                u64::from(decision.remaining) * 1_000_000 / u64::from(decision.limit.max(1))
            }),
        );
    }

    /// Decisions made without the store, because it could not answer.
    pub(super) fn without_store(&self) -> u64 {
        let by = |source: Source| self.decisions.iter().map(move |counts| counts[source as usize].load(Relaxed));
        by(Source::Local).chain(by(Source::Policy)).sum()
    }

    pub(super) fn is_used(&self) -> bool {
        self.decisions.iter().flatten().any(|count| count.load(Relaxed) > 0)
    }

    /// Denials are those because of a limit or a block: when the store could not answer, no limit was reached.
    pub(super) fn outcomes(&self) -> Outcomes {
        let known = |by_source: &[AtomicU64]| -> u64 {
            let sources = Source::ALL.iter().zip(by_source).filter(|(source, _)| **source != Source::Policy);
            sources.map(|(_, count)| count.load(Relaxed)).sum()
        };
        Outcomes {
            allowed: self.decisions[0].iter().map(|count| count.load(Relaxed)).sum(),
            denied: known(&self.decisions[1]),
            shadow_denied: known(&self.decisions[2]),
            annotated: known(&self.decisions[3]),
        }
    }

    /// Leaves out combinations that cannot occur for the rule; the others start at 0, so that their first increase is
    /// visible.
    pub(super) fn add_decisions(&self, family: &mut Family) {
        let may_deny = denial_of(&self.rule);
        for (outcome, (name, by_source)) in OUTCOMES.iter().zip(&self.decisions).enumerate() {
            for (source, count) in Source::ALL.iter().zip(by_source) {
                let count = count.load(Relaxed);
                let usual = *source == Source::Store && (outcome == 0 || outcome == may_deny);
                if count > 0 || usual {
                    family.add([self.rule.name(), name, source.name()], count);
                }
            }
        }
    }

    pub(super) fn add_remaining(&self, family: &mut Family) {
        family.add([self.rule.name()], self.remaining.distribution());
    }
}
