//! Metrics: families of samples (`Family`), described once in `catalog` and written in Prometheus' text format
//! (`text`) and as OTLP (`telemetry`). Other parts of the service add families of their own.
//!
//! A decision is counted by atomics that were created when its rule came into force: no lock and no allocation in the
//! path of a request ([decision 14](../../../docs/decisions/0014-alerts-and-telemetry.md)). No label is ever
//! something that a client can choose: rules, routes, statuses and sources are ours.

pub(crate) mod catalog;
mod commands;
mod connections;
mod family;
mod histogram;
mod proxy;
mod reloads;
mod requests;
mod responses;
mod rules;
mod store;
mod text;
mod without_store;

pub use catalog::FAMILIES;
pub(crate) use commands::CommandOutcome;
pub(crate) use connections::{AllConnections, Connections, Refused};
pub use family::{Description, Kind, Unit};
pub(crate) use family::{Distribution, Family, Value};
pub(crate) use proxy::{Proxied, UpstreamError, WaitOutcome};
pub(crate) use reloads::{Refusal, Reloads};
pub(crate) use requests::{Front, Outcome, RequestCounts};
pub(crate) use rules::Outcomes;
pub(crate) use text::{Exposition, text};
pub(crate) use without_store::WithoutStore;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tollkeeper::{Limiter, Row, Rule};

use commands::Commands;
use histogram::{DURATION, Histogram};
use requests::Requests;
use responses::Responses;
use rules::{RuleCounters, RuleTable};
use without_store::WithoutStoreCounters;

/// All counters of requests.
#[derive(Debug)]
pub(crate) struct Metrics {
    rules: ArcSwap<RuleTable>,
    /// Held while a table is built: two built at once would each miss counts of the other.
    renewal: Mutex<()>,
    /// Of rules that are in no file, as that of `CL.THROTTLE`.
    built_in: Vec<RuleCounters>,
    check_duration: Histogram,
    responses: Responses,
    commands: Commands,
    without_store: WithoutStoreCounters,
    requests: Requests,
    pub(crate) reloads: Reloads,
    pub(crate) connections: AllConnections,
    pub(crate) proxy: Arc<Proxied>,
}

/// Label values that other modules define.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    /// The routes of the HTTP front.
    pub(crate) routes: &'static [&'static str],
    /// The commands of the RESP front.
    pub(crate) commands: &'static [&'static str],
    /// The rules that stand for limits of the clients' choice: of `CL.THROTTLE`, and of Envoy.
    pub(crate) built_in: Vec<Arc<Rule>>,
}

impl Metrics {
    /// With all counters at 0.
    pub(crate) fn new(labels: Labels) -> Metrics {
        Metrics {
            rules: ArcSwap::from_pointee(RuleTable::default()),
            renewal: Mutex::new(()),
            built_in: labels.built_in.into_iter().map(RuleCounters::new).collect(),
            check_duration: Histogram::new(DURATION),
            responses: Responses::new(labels.routes),
            commands: Commands::new(labels.commands),
            without_store: WithoutStoreCounters::default(),
            requests: Requests::default(),
            reloads: Reloads::default(),
            connections: AllConnections::default(),
            proxy: Arc::default(),
        }
    }

    /// Counts the decisions about one request, or about several that were decided together, and how long these took: each its
    /// share.
    pub(crate) fn record(&self, limiter: &Limiter, rows: &[Row], requests: usize, took: Duration) {
        let (took, requests) = (u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), requests as u64);
        self.check_duration.observe_times(took / requests.max(1), requests);
        rows.iter().filter(|row| !row.is_unasked()).for_each(|row| self.without_store.count(row));
        let rules = self.rules.load();
        for rows in rows.chunk_by(|row, next| Arc::ptr_eq(&row.charge.rule, &next.charge.rule)) {
            let rule = &rows[0].charge.rule;
            match rules.find(rule) {
                Some(counters) => counters.count(rows),
                None => match self.built_in.iter().find(|known| known.rule.name() == rule.name()) {
                    Some(counters) => counters.count(rows),
                    None => self.record_new(limiter, rule.name(), rows),
                },
            }
        }
    }

    /// Slow path: the first decisions after rules have changed.
    #[cold]
    fn record_new(&self, limiter: &Limiter, rule: &str, rows: &[Row]) {
        self.refresh(limiter);
        // A verdict under rules that were replaced in the meantime counts for the rule of the same name, if there
        // still is one.
        if let Some(counters) = self.rules.load().by_name(rule) {
            counters.count(rows);
        }
    }

    /// Creates counters for the rules in force, and keeps those of rules with the same name.
    fn refresh(&self, limiter: &Limiter) {
        let _alone = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = limiter.policy();
        let table = self.rules.load();
        if !table.is_of(&policy) {
            self.rules.store(Arc::new(RuleTable::new(policy, &table)));
        }
    }

    /// Counts an answer of the RESP front. An unlisted command counts as unknown.
    pub(crate) fn count_command(&self, command: usize, outcome: CommandOutcome) {
        self.count_commands(command, outcome, 1);
    }

    /// Counts equal answers to the same command.
    pub(crate) fn count_commands(&self, command: usize, outcome: CommandOutcome, times: usize) {
        if times > 0 {
            self.commands.count(command, outcome, times as u64);
        }
    }

    /// Counts a response of the HTTP front. An unlisted route counts as unknown.
    pub(crate) fn count_request(&self, route: &str, status: u16) {
        self.responses.count(route, status);
    }

    /// Counts what became of a request.
    pub(crate) fn count_outcome(&self, front: Front, outcome: impl Into<Outcome>) {
        self.count_outcomes(front, outcome, 1);
    }

    /// Counts requests with the same outcome.
    pub(crate) fn count_outcomes(&self, front: Front, outcome: impl Into<Outcome>, requests: usize) {
        if requests > 0 {
            self.requests.count(front, outcome.into(), requests as u64);
        }
    }

    /// Counts requests that were refused before anything was decided.
    pub(crate) fn count_refused(&self, front: Front, requests: usize) {
        self.count_outcomes(front, Outcome::Error, requests);
    }

    /// What became of all requests so far.
    pub(crate) fn requests(&self) -> RequestCounts {
        self.requests.counts()
    }

    /// How many decisions were made without the store.
    pub(crate) fn without_store(&self) -> WithoutStore {
        self.without_store.read()
    }

    /// The same by rule, for those that made any.
    pub(crate) fn rules_without_store(&self) -> Vec<(Arc<str>, u64)> {
        let by_rule = |counters: &Arc<RuleCounters>| (counters.rule.shared_name(), counters.without_store());
        self.rules.load().in_order.iter().map(by_rule).filter(|(_, count)| *count > 0).collect()
    }

    /// What each rule has decided so far.
    pub(crate) fn outcomes(&self) -> Vec<(Arc<Rule>, Outcomes)> {
        let rules = self.rules.load();
        let outcomes = |counters: &RuleCounters| (counters.rule.clone(), counters.outcomes());
        self.all_counters(&rules).map(outcomes).collect()
    }

    /// The rules that stand for `CL.THROTTLE` and for limits sent by Envoy, where those are used.
    pub(crate) fn built_in_rules(&self) -> impl Iterator<Item = &Rule> {
        self.used_built_in().map(|counters| &*counters.rule)
    }

    /// How many decisions fell into each bucket of the duration histogram.
    pub(crate) fn durations(&self) -> Vec<u64> {
        self.check_duration.counts()
    }

    /// The upper bound of such a bucket in microseconds, if it has one.
    pub(crate) fn duration_bound_us(bucket: usize) -> Option<f64> {
        DURATION.bound(bucket).map(|nanos| nanos as f64 / 1_000.0)
    }

    /// All counters of this module, and the metrics of the limiter.
    pub(crate) fn families(&self, limiter: &Limiter) -> Vec<Family> {
        self.refresh(limiter);
        let rules = self.rules.load();
        let mut decisions = Family::new(&catalog::DECISIONS);
        let mut remaining = Family::new(&catalog::REMAINING);
        for counters in self.all_counters(&rules) {
            counters.add_decisions(&mut decisions);
            counters.add_remaining(&mut remaining);
        }
        let mut lacking = Family::new(&catalog::LACKING_ATTRIBUTE);
        for (rule, count) in limiter.lacking() {
            lacking.add([rule.name()], count);
        }
        let durations = Family::single(&catalog::CHECK_DURATION, self.check_duration.distribution());
        let mut families = Vec::from(self.requests.families());
        families.extend([decisions, remaining, lacking, durations]);
        families.extend(store::families(limiter));
        families.extend([
            Family::single(&catalog::RULES_LOADED, rules.in_order.len() as u64),
            self.responses.family(),
            self.commands.family(),
            self.reloads.family(),
        ]);
        families.extend(self.connections.families());
        families.extend(self.proxy.families());
        families
    }

    fn all_counters<'m>(&'m self, rules: &'m RuleTable) -> impl Iterator<Item = &'m RuleCounters> {
        rules.in_order.iter().map(|counters| &**counters).chain(self.used_built_in())
    }

    /// Only if they are used: most services use rules of their own.
    fn used_built_in(&self) -> impl Iterator<Item = &RuleCounters> {
        self.built_in.iter().filter(|counters| counters.is_used())
    }
}

#[cfg(test)]
mod tests;
