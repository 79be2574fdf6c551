//! Requests that no rule applies to: how many of all, and what most of them lack.

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Span, Timestamp};
use tollkeeper_tune::words::counted;
use tollkeeper_tune::{horizon, percent};

use super::timeline::Timeline;
use crate::metrics::RequestCounts;
use crate::unmatched::Lacking;

/// How far back the finding looks, in minutes.
const MINUTES: usize = 60;
/// From this share of all requests on, it is worth a finding.
const NOTABLE: f64 = 0.05;
/// Attributes that are named in the evidence.
const MOST_NAMED: usize = 10;

/// What is known about requests without a rule, since the rules last changed.
#[derive(Debug)]
pub(super) struct NoRule {
    since: Timestamp,
    /// The attributes, in the order of the counts.
    attributes: Vec<String>,
    counted: Vec<u64>,
    timeline: Timeline<Slot>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    requests: u64,
    no_rule: u64,
    lacking: Vec<u64>,
}

impl AddAssign for Slot {
    fn add_assign(&mut self, other: Slot) {
        self.requests += other.requests;
        self.no_rule += other.no_rule;
        self.lacking.resize(self.lacking.len().max(other.lacking.len()), 0);
        self.lacking.iter_mut().zip(other.lacking).for_each(|(count, more)| *count += more);
    }
}

/// Traffic that no rule limits.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct NoRuleFinding {
    /// `no_rule`.
    kind: &'static str,
    /// The same for people.
    sentence: String,
    /// The numbers behind it.
    evidence: NoRuleEvidence,
}

/// The numbers behind it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
struct NoRuleEvidence {
    /// The period covered, in seconds.
    seconds: u64,
    /// All requests in that time.
    requests: u64,
    /// Those that no rule applied to.
    no_rule: u64,
    /// What these lacked, most first.
    lacking: Vec<LackingAttribute>,
}

/// An attribute that rules need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct LackingAttribute {
    /// Its name, or alternatives such as `api_key|ip`.
    attribute: String,
    /// How many requests without a rule lacked it.
    requests: u64,
}

impl NoRule {
    pub(super) fn since(now: Timestamp) -> NoRule {
        NoRule { since: now, attributes: Vec::new(), counted: Vec::new(), timeline: Timeline::new() }
    }

    /// Adds the growth of the counters to this second.
    pub(super) fn count(&mut self, second: u64, grown: RequestCounts, lacking: &[Lacking]) {
        if self.attributes.len() != lacking.len() {
            self.attributes = lacking.iter().map(|lacking| lacking.names.join("|")).collect();
            self.counted = vec![0; lacking.len()];
        }
        let mut slot = Slot { requests: grown.total(), no_rule: grown.no_rule, lacking: Vec::new() };
        for (before, now) in self.counted.iter_mut().zip(lacking) {
            slot.lacking.push(now.requests.saturating_sub(*before));
            *before = now.requests;
        }
        if slot.requests > 0 || slot.lacking.iter().any(|count| *count > 0) {
            self.timeline.add(second, slot);
        }
    }

    /// The finding, if enough of the traffic has no rule.
    pub(super) fn finding(&self, now: Timestamp, rules: usize) -> Option<NoRuleFinding> {
        let second = now.as_micros() / Span::SECOND.as_micros();
        let mut sum = Slot::default();
        let minutes = self.timeline.minutes(second);
        let older = minutes.len().saturating_sub(MINUTES);
        minutes.skip(older).for_each(|slot| sum += slot);
        let Slot { requests, no_rule, lacking } = sum;
        if no_rule == 0 || (no_rule as f64) < NOTABLE * requests as f64 {
            return None;
        }
        let mut lacking: Vec<LackingAttribute> = self
            .attributes
            .iter()
            .zip(lacking)
            .map(|(attribute, requests)| LackingAttribute { attribute: attribute.clone(), requests })
            .filter(|lacking| lacking.requests > 0)
            .collect();
        lacking.sort_by_key(|lacking| std::cmp::Reverse(lacking.requests));
        lacking.truncate(MOST_NAMED);
        let seconds = (now.since(self.since).as_micros() / Span::SECOND.as_micros()).clamp(1, MINUTES as u64 * 60);
        let evidence = NoRuleEvidence { seconds, requests, no_rule, lacking };
        Some(NoRuleFinding { kind: "no_rule", sentence: evidence.sentence(rules), evidence })
    }
}

impl NoRuleEvidence {
    fn sentence(&self, rules: usize) -> String {
        /// Fewer are listed one by one.
        const FEW: u64 = 20;
        let share = match self.requests {
            0..FEW => format!("{} of {}", self.no_rule, counted(self.requests, "request")),
            _ => format!("{} of requests", percent(self.no_rule as f64 / self.requests as f64)),
        };
        format!("{share} matched no rule in the last {}; {}", horizon(self.seconds), self.why(rules))
    }

    fn why(&self, rules: usize) -> String {
        if rules == 0 {
            return "there are no rules, so everything passes".into();
        }
        let Some(LackingAttribute { attribute, requests }) = self.lacking.first() else {
            return "they have every attribute that rules need, with values that no `when` matches".into();
        };
        let name = format!("`{}`", attribute.replace('|', "` or `"));
        match *requests as f64 / self.no_rule as f64 {
            _ if self.no_rule == 1 => format!("it lacks {name}"),
            1.0.. => format!("all of these lack {name}"),
            0.5.. => format!("most of these lack {name}"),
            share => format!("{} of these lack {name}", percent(share)),
        }
    }
}
