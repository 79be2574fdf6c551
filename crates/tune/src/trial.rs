//! Rules tried on requests: the real engine in virtual time. Each request is decided at its own time, all or nothing.

use std::sync::Arc;

use tollkeeper::{Charge, Decision, Key, Policy, Quota, Row, Source, Span, Timestamp, Verdict};
use tollkeeper_core::{Change, is_denied};

use crate::buckets::{Buckets, Place};
use crate::lines::LineCharge;
use crate::traffic::{Said, Traffic};

/// Buckets in use at the same time, about 60 bytes each. Idle ones make room.
pub const MAX_KEYS: usize = 7_000_000;

/// Rules and what they said.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) engine: Engine,
    pub(crate) rules: Vec<Traffic>,
}

/// Decides requests, one after the other. That is the only part of a run in which requests wait for each other: a request takes from all of its
/// buckets or from none, so what one rule says depends on all others.
#[derive(Debug)]
pub(crate) struct Engine {
    policy: Arc<Policy>,
    quotas: Vec<Quota>,
    /// A charge of each rule, for what the rule has to say.
    charges: Vec<Charge>,
    buckets: Buckets,
    /// What was decided of the last request.
    decided: Vec<Decided>,
    /// Requests that are denied.
    pub(crate) denied: u64,
    /// Requests that no rule applies to.
    pub(crate) no_rule: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Denied,
    NoRule,
}

#[derive(Debug)]
struct Decided {
    rule: u32,
    place: Place,
    decision: Decision,
    change: Change,
}

impl Trial {
    pub(crate) fn new(policy: Arc<Policy>, max_keys: usize) -> Trial {
        let rules = policy.rules();
        let engine = Engine {
            quotas: rules.iter().map(|rule| *rule.quota()).collect(),
            charges: rules.iter().map(|rule| Charge::new(rule.clone(), Key::default(), 1)).collect(),
            buckets: Buckets::new(max_keys),
            decided: Vec::new(),
            denied: 0,
            no_rule: 0,
            policy: policy.clone(),
        };
        Trial { engine, rules: rules.iter().map(|rule| Traffic::new(rule.clone())).collect() }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.engine.policy
    }

    /// Charges of new keys that had to share a bucket, because there were too many.
    pub(crate) fn overflowed(&self) -> u64 {
        self.engine.buckets.overflowed()
    }
}

impl Engine {
    /// Decides a request and adds what is said to each of its charges.
    pub(crate) fn decide(&mut self, at_us: u64, charges: &[LineCharge], said: &mut Vec<Said>) -> Outcome {
        if charges.is_empty() {
            self.no_rule += 1;
            return Outcome::NoRule;
        }
        let now = Timestamp::from_micros(at_us);
        self.decided.clear();
        for charge in charges {
            let LineCharge { rule, cost, .. } = *charge;
            let place = self.buckets.place(charge, now, &self.quotas);
            let (decision, change) = self.buckets.decide(place, &self.quotas[rule as usize], cost, now);
            said.push(match decision.is_allowed() {
                true => Said::Allowed,
                false => Said::Denied { wait: decision.retry_after() },
            });
            self.decided.push(Decided { rule, place, decision, change });
        }
        let is_denied = is_denied(self.decided.iter().map(|one| (&self.charges[one.rule as usize], &one.decision)));
        for one in &mut self.decided {
            // As in `decide_all`: what a denied request would have taken elsewhere is not taken.
            if !is_denied || !one.decision.is_allowed() {
                self.buckets.apply(one.place, one.rule, std::mem::replace(&mut one.change, Change::None));
            }
        }
        self.denied += u64::from(is_denied);
        if is_denied { Outcome::Denied } else { Outcome::Passed }
    }

    /// How long the request that was just denied has to wait; `None` if it can never pass.
    pub(crate) fn wait(&self) -> Option<Span> {
        let row = |one: &Decided| Row::decided(self.charges[one.rule as usize].clone(), one.decision, Source::Store);
        Verdict::new(self.decided.iter().map(row).collect()).retry_after()
    }
}
