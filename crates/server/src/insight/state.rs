//! What has been read of the traffic so far.

use std::collections::HashMap;
use std::sync::Arc;

use tollkeeper::{Policy, Rule, Span, Timestamp};

use super::rule::{Outcomes, RuleInsight};
use super::timeline::Timeline;
use crate::audit::Audit;
use crate::capture::Batch;
use crate::metrics::Metrics;

/// Rules that are looked at closely; more than these come up together only in very large files.
const MOST_RULES: usize = 128;

#[derive(Debug)]
pub(super) struct State {
    pub(super) spare: Batch,
    policy: Option<Arc<Policy>>,
    pub(super) began: Timestamp,
    pub(super) rules: HashMap<Arc<str>, RuleInsight>,
    /// Decisions by rules beyond [`MOST_RULES`].
    pub(super) beyond: u64,
    /// The counters as they were last seen.
    pub(super) counted: HashMap<Arc<str>, Outcomes>,
    pub(super) latency: Timeline<Latency>,
    latency_counted: Latency,
    pub(super) audit: Audit,
}

/// Decisions by how long they took: one count for each bound of the histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Latency(pub(super) Vec<u64>);

impl std::ops::AddAssign for Latency {
    fn add_assign(&mut self, other: Latency) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

impl State {
    pub(super) fn new(audit: Audit, now: Timestamp) -> State {
        State {
            spare: Batch::default(),
            policy: None,
            began: now,
            rules: HashMap::new(),
            beyond: 0,
            counted: HashMap::new(),
            latency: Timeline::new(),
            latency_counted: Latency::default(),
            audit,
        }
    }

    /// The rules in force are the ones that are looked at.
    pub(super) fn follow(&mut self, policy: Arc<Policy>, now: Timestamp) {
        if self.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, &policy)) {
            return;
        }
        self.rules.retain(|name, insight| match policy.rule(name) {
            Some(rule) => {
                insight.follow(rule, now);
                true
            }
            None => is_throttle(name),
        });
        self.counted.retain(|name, _| policy.rule(name).is_some() || is_throttle(name));
        self.policy = Some(policy);
    }

    /// What is known of a rule, from its first decision on; `None` when there are too many.
    pub(super) fn tracked(&mut self, rule: &Arc<Rule>, now: Timestamp) -> Option<&mut RuleInsight> {
        if !self.rules.contains_key(rule.name()) {
            let policy = self.policy.as_ref()?;
            // A caller may bring a limit of its own; what is judged is the rule's.
            let own = policy.rule(rule.name());
            if self.rules.len() >= MOST_RULES || (own.is_none() && !is_throttle(rule.name())) {
                return None;
            }
            self.rules.insert(rule.shared_name(), RuleInsight::new(own.unwrap_or(rule), self.began.max(now)));
        }
        self.rules.get_mut(rule.name())
    }

    /// Adds what the counters have grown by to this second.
    pub(super) fn count(&mut self, metrics: &Metrics, now: Timestamp) {
        let second = now.as_micros() / Span::SECOND.as_micros();
        for (rule, allowed, denied) in metrics.outcomes() {
            let outcomes = Outcomes { allowed, denied };
            let before = self.counted.insert(rule.shared_name(), outcomes).unwrap_or_default();
            if outcomes != before
                && let Some(insight) = self.tracked(&rule, now)
            {
                insight.timeline.add(
                    second,
                    Outcomes {
                        allowed: allowed.saturating_sub(before.allowed),
                        denied: denied.saturating_sub(before.denied),
                    },
                );
            }
        }
        let durations = metrics.durations();
        let before = std::mem::replace(&mut self.latency_counted, Latency(durations.clone()));
        let grown = durations.iter().zip(before.0.iter().chain(std::iter::repeat(&0)));
        let grown: Vec<u64> = grown.map(|(now, before)| now.saturating_sub(*before)).collect();
        if grown.iter().any(|count| *count > 0) {
            self.latency.add(second, Latency(grown));
        }
    }
}

/// Whether this is what `CL.THROTTLE` is counted under: a rule that no file names.
pub(super) fn is_throttle(name: &str) -> bool {
    name.starts_with('(')
}
