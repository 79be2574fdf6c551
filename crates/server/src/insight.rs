//! Traffic analysis: hot keys, which clients are denied and how they react, and whether a limit is wrong.
//!
//! All memory is bounded, and what did not fit is counted. Only rules in force are observed, and what was learned
//! about a limit is dropped when it changes. What to think of it is in `tollkeeper-tune`, which `tollkeeper tune` uses too.

mod no_rule;
mod rule;
mod timeline;

pub(crate) use no_rule::NoRuleFinding;
pub(crate) use rule::RuleInsight;
pub(crate) use timeline::Timeline;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, RandomState};
use std::iter;
use std::ops::AddAssign;
use std::sync::Arc;

use tollkeeper::{Policy, Rule, Span, Timestamp};

use crate::capture::{Denied, Note};
use crate::metrics::{Metrics, Outcomes, RequestCounts};
use crate::unmatched::Lacking;
use no_rule::NoRule;
use rule::{Observation, Observed, is_throttle};

/// Rules that are analysed; only very large files have more.
const MOST_RULES: usize = 128;

/// All that is known about the traffic.
#[derive(Debug)]
pub(crate) struct Insight {
    /// Random, so that no client can choose keys that collide or that enter the sample.
    hasher: RandomState,
    began: Timestamp,
    policy: Option<Arc<Policy>>,
    rules: HashMap<Arc<str>, RuleInsight>,
    /// Decisions by rules beyond [`MOST_RULES`].
    beyond: u64,
    /// The counters as last seen.
    counted: HashMap<Arc<str>, Outcomes>,
    requests_counted: RequestCounts,
    requests: Timeline<RequestCounts>,
    no_rule: NoRule,
    latency: Timeline<Latency>,
    latency_counted: Latency,
    /// Whether anything was decided before the counters were last read.
    has_decided: bool,
}

/// Decisions by duration: one count per bucket of the histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency(pub(crate) Vec<u64>);

impl AddAssign for Latency {
    fn add_assign(&mut self, other: Latency) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

impl Insight {
    pub(crate) fn new(now: Timestamp) -> Insight {
        Insight {
            hasher: RandomState::new(),
            began: now,
            policy: None,
            rules: HashMap::new(),
            beyond: 0,
            counted: HashMap::new(),
            requests_counted: RequestCounts::default(),
            requests: Timeline::new(),
            no_rule: NoRule::since(now),
            latency: Timeline::new(),
            latency_counted: Latency::default(),
            has_decided: false,
        }
    }

    /// Observes the rules in force, and forgets others.
    pub(crate) fn follow(&mut self, policy: Arc<Policy>, now: Timestamp) {
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
        // What was not matched before says nothing about the new rules.
        self.no_rule = NoRule::since(now);
        self.policy = Some(policy);
    }

    /// Adds a noted decision.
    pub(crate) fn add(&mut self, note: &Note<'_>) {
        let hash = self.hasher.hash_one((note.variant, note.key));
        let Some(insight) = self.observed_mut(note.rule, note.at) else {
            self.beyond += 1;
            return;
        };
        let outcome = match note.denied {
            None => Observed::Allowed,
            Some(Denied { block: Some(_), .. }) => Observed::Blocked,
            Some(denied) => Observed::Denied { wait: denied.retry_after },
        };
        insight.add(Observation {
            at: note.at,
            hash,
            variant: note.variant,
            key: note.key,
            cost: note.cost,
            outcome,
            own_quota: note.on_own_terms && insight.has_quota(note.rule.quota()),
            enforced: note.rule.is_enforced(),
        });
    }

    /// Adds the growth of the counters to this second, and drops what is too old; whether anything had grown, or may not have been complete.
    pub(crate) fn count(&mut self, metrics: &Metrics, lacking: &[Lacking], now: Timestamp) -> bool {
        let second = now.as_micros() / Span::SECOND.as_micros();
        let requests = metrics.requests();
        let grown = requests.since(std::mem::replace(&mut self.requests_counted, requests));
        let mut has_grown = grown.total() > 0;
        if has_grown {
            self.requests.add(second, grown);
        }
        self.no_rule.count(second, grown, lacking);
        let durations = metrics.durations();
        let before = std::mem::replace(&mut self.latency_counted, Latency(durations.clone()));
        let grown = durations.iter().zip(before.0.iter().chain(iter::repeat(&0)));
        let grown: Vec<u64> = grown.map(|(now, before)| now.saturating_sub(*before)).collect();
        let decides = grown.iter().any(|count| *count > 0);
        if decides {
            self.latency.add(second, Latency(grown));
        }
        // A decision is timed before it is counted under its rule, so the rules are read once more after the last one. While
        // nothing is decided they are not read at all, however many there are.
        let has_decided = std::mem::replace(&mut self.has_decided, decides);
        has_grown |= decides || has_decided;
        if decides || has_decided {
            self.count_rules(metrics, second, now);
        }
        self.rules.values_mut().for_each(|rule| rule.age(now));
        has_grown
    }

    fn count_rules(&mut self, metrics: &Metrics, second: u64, now: Timestamp) {
        for (rule, outcomes) in metrics.outcomes() {
            let before = self.counted.insert(rule.shared_name(), outcomes).unwrap_or_default();
            if outcomes != before
                && let Some(insight) = self.observed_mut(&rule, now)
            {
                insight.timeline.add(second, outcomes.since(before));
            }
        }
    }

    /// What is known about a rule, from its first decision on; `None` when there are too many rules.
    fn observed_mut(&mut self, rule: &Arc<Rule>, now: Timestamp) -> Option<&mut RuleInsight> {
        let known = self.rules.len();
        match self.rules.entry(rule.shared_name()) {
            Entry::Occupied(insight) => Some(insight.into_mut()),
            Entry::Vacant(new) => {
                let policy = self.policy.as_ref()?;
                // The rule may be an older one of the same name; the finding is about the one in force.
                let own = policy.rule(rule.name());
                let is_observed = known < MOST_RULES && (own.is_some() || is_throttle(rule.name()));
                is_observed.then(|| new.insert(RuleInsight::new(own.unwrap_or(rule), self.began.max(now))))
            }
        }
    }

    /// What is known about a rule, after its first decision.
    pub(crate) fn rule(&self, name: &str) -> Option<&RuleInsight> {
        self.rules.get(name)
    }

    /// A rule's counters, as of its timeline.
    pub(crate) fn counted(&self, name: &str) -> Outcomes {
        self.counted.get(name).copied().unwrap_or_default()
    }

    /// What became of requests, as of their timeline.
    pub(crate) fn requests_counted(&self) -> RequestCounts {
        self.requests_counted
    }

    /// What became of requests, over time.
    pub(crate) fn requests(&self) -> &Timeline<RequestCounts> {
        &self.requests
    }

    /// The finding about requests without a rule, if there are many.
    pub(crate) fn no_rule(&self, now: Timestamp) -> Option<NoRuleFinding> {
        self.no_rule.finding(now, self.policy.as_ref().map_or(0, |policy| policy.rules().len()))
    }

    /// How long decisions took, over time.
    pub(crate) fn latency(&self) -> &Timeline<Latency> {
        &self.latency
    }

    /// Decisions that did not fit here.
    pub(crate) fn dropped(&self) -> u64 {
        self.beyond
    }
}
