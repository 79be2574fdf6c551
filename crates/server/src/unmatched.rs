//! Requests that no rule applies to, and the attributes that they lack.
//!
//! Counted by atomics that were created when the rules came into force. The names are those of the rules, never a
//! client's choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use tollkeeper::{Policy, Request};

/// The counters of the latest policy.
#[derive(Debug, Default)]
pub(crate) struct Unmatched(ArcSwapOption<Counters>);

#[derive(Debug)]
struct Counters {
    policy: Arc<Policy>,
    needs: Vec<Need>,
}

/// Attributes of which some rules need one.
#[derive(Debug)]
struct Need {
    names: Vec<String>,
    /// The rules, by position.
    rules: Vec<usize>,
    lacking: AtomicU64,
}

/// How many requests without a rule lacked an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// One of these would do.
    pub(crate) names: Vec<String>,
    pub(crate) requests: u64,
}

impl Unmatched {
    /// Counts what a request without a rule lacks.
    pub(crate) fn note(&self, policy: &Arc<Policy>, request: &impl Request) {
        let counters = self.of(policy).unwrap_or_else(|| {
            let counters = Arc::new(Counters::new(policy.clone()));
            self.0.store(Some(counters.clone()));
            counters
        });
        for need in counters.needs.iter().filter(|need| need.is_lacked_by(request, policy)) {
            need.lacking.fetch_add(1, Relaxed);
        }
    }

    /// What requests without a rule lacked under this policy, so far.
    pub(crate) fn lacking(&self, policy: &Arc<Policy>) -> Vec<Lacking> {
        let lacking = |need: &Need| Lacking { names: need.names.clone(), requests: need.lacking.load(Relaxed) };
        self.of(policy).map(|counters| counters.needs.iter().map(lacking).collect()).unwrap_or_default()
    }

    fn of(&self, policy: &Arc<Policy>) -> Option<Arc<Counters>> {
        self.0.load_full().filter(|counters| Arc::ptr_eq(&counters.policy, policy))
    }
}

impl Counters {
    fn new(policy: Arc<Policy>) -> Counters {
        let mut needs: Vec<Need> = Vec::new();
        for requirement in policy.requirements() {
            for names in &requirement.attributes {
                match needs.iter_mut().find(|need| need.names == *names) {
                    Some(need) => need.rules.extend(&requirement.rules),
                    None => {
                        let rules = requirement.rules.clone();
                        needs.push(Need { names: names.clone(), rules, lacking: AtomicU64::new(0) });
                    }
                }
            }
        }
        Counters { policy, needs }
    }
}

impl Need {
    fn is_lacked_by(&self, request: &impl Request, policy: &Policy) -> bool {
        let is_considered = |position: &usize| request.considers(policy.rules()[*position].name());
        self.names.iter().all(|name| request.attribute(name).is_none()) && self.rules.iter().any(is_considered)
    }
}
