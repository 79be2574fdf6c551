//! Rules tried on requests: the real engine in virtual time. The clock is set to each request's own time, and the memory store decides.

use std::sync::Arc;

use tollkeeper::{Algorithm, Charge, Clock, ManualClock, MemoryStore, Policy, Row, Source, Span, Timestamp, Verdict};

use crate::census::ByHash;
use crate::facts::Facts;
use crate::traffic::{Said, Traffic};

/// Buckets in use at the same time, 36 bytes each. Idle ones make room.
pub const MAX_KEYS: usize = 8_000_000;

impl Fate {
    pub(crate) fn is_denied(self) -> bool {
        matches!(self, Fate::Denied { .. })
    }
}

/// Rules and what they said.
#[derive(Debug)]
pub(crate) struct Trial {
    policy: Arc<Policy>,
    clock: ManualClock,
    store: MemoryStore,
    places: ByHash<usize>,
    pub(crate) rules: Vec<Traffic>,
    /// Requests that at least one enforced rule denies.
    pub(crate) denied: u64,
    /// Requests that no rule applies to.
    pub(crate) no_rule: u64,
    /// Requests that could not be decided.
    pub(crate) undecided: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Passed,
    Denied {
        /// Until it would pass; `None` if it never can.
        wait: Option<Span>,
    },
    NoRule,
}

fn place_of(rule: &Arc<tollkeeper::Rule>) -> u64 {
    // Aligned, so the low bits tell nothing.
    (Arc::as_ptr(rule) as usize as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Trial {
    pub(crate) fn new(policy: Arc<Policy>, max_keys: usize) -> Trial {
        let clock = ManualClock::default();
        let store = MemoryStore::with(max_keys, Clock::from(clock.clone()));
        let rules: Vec<Traffic> = policy.rules().iter().map(|rule| Traffic::new(rule.clone())).collect();
        let places = policy.rules().iter().enumerate().map(|(place, rule)| (place_of(rule), place)).collect();
        Trial { policy, clock, store, places, rules, denied: 0, no_rule: 0, undecided: 0 }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether a log can tell what a rule would do: of requests at the same time it does not say when they ended.
    pub(crate) fn is_tried(rule: &tollkeeper::Rule) -> bool {
        rule.quota().algorithm() != Algorithm::Concurrency
    }

    /// Charges of new keys that had to share a bucket, because the store was full.
    pub(crate) fn overflowed(&self) -> u64 {
        let overflowed = self.store.overflowed();
        overflowed.keys + overflowed.logs
    }

    /// Decides a request.
    pub(crate) fn decide(&mut self, at_us: u64, charges: Vec<Charge>, facts: &Facts) -> Fate {
        if charges.is_empty() {
            self.no_rule += 1;
            return Fate::NoRule;
        }
        self.clock.set(Timestamp::from_micros(at_us));
        let Ok(decisions) = self.store.charge(&charges) else {
            self.undecided += 1;
            return Fate::Passed;
        };
        let mut any_denies = false;
        for (charge, decision) in charges.iter().zip(&decisions) {
            let said = match decision.is_allowed() {
                true => Said::Allowed,
                false => Said::Denied { wait: decision.retry_after() },
            };
            any_denies |= said != Said::Allowed;
            if let Some(place) = self.places.get(&place_of(&charge.rule)) {
                self.rules[*place].add(at_us, &charge.key, charge.cost, facts, said);
            }
        }
        if !any_denies {
            return Fate::Passed;
        }
        let rows = charges.into_iter().zip(decisions);
        let verdict =
            Verdict::new(rows.map(|(charge, decision)| Row::decided(charge, decision, Source::Store)).collect());
        if verdict.is_allowed() {
            return Fate::Passed;
        }
        self.denied += 1;
        Fate::Denied { wait: verdict.retry_after() }
    }
}
