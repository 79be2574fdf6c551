//! What Prometheus sees.
//!
//! A decision is counted by atomics that were made when its rule came into force: no lock and no allocation on the
//! way of a request, which is why this is not a metrics library (their histograms lock). No label is ever something
//! that a client can choose: rules, routes, statuses and sources are ours.

mod commands;
mod observed;
mod reloads;
mod spans;
mod without_store;

pub(crate) use commands::CommandOutcome;
pub(crate) use reloads::{Refusal, Reloads};
pub(crate) use spans::{SpanOutcome, Spans};
pub(crate) use without_store::WithoutStore;

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tollkeeper::{BreakerState, DURATION_BOUNDS, Limiter, Policy, Row, Rule, Source, Store, Traffic, Verdict};

use commands::Commands;
use without_store::WithoutStoreCounts;

/// The content type of a [`Page`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    rules: ArcSwap<RuleTable>,
    /// Held while a table is made: two made at once would each have counts that the other lacks.
    renewal: Mutex<()>,
    /// What `CL.THROTTLE` decided: all its quotas together, as they are the clients' choice.
    throttle: RuleSeries,
    check_duration: Histogram,
    requests: Requests,
    commands: Commands,
    without_store: WithoutStoreCounts,
    pub(crate) reloads: Reloads,
}

/// What others define and metrics are labelled with.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    /// The routes of the HTTP front.
    pub(crate) routes: &'static [&'static str],
    /// The commands of the RESP front.
    pub(crate) commands: &'static [&'static str],
    /// The rule that stands for all quotas of `CL.THROTTLE`, which are its clients' choice.
    pub(crate) throttle: Arc<Rule>,
}

impl Metrics {
    /// Nothing counted yet.
    pub(crate) fn new(labels: Labels) -> Metrics {
        Metrics {
            rules: ArcSwap::from_pointee(RuleTable::default()),
            renewal: Mutex::new(()),
            throttle: RuleSeries::new(labels.throttle),
            check_duration: Histogram::new(DURATION),
            requests: Requests::new(labels.routes),
            commands: Commands::new(labels.commands),
            without_store: WithoutStoreCounts::default(),
            reloads: Reloads::default(),
        }
    }

    /// Counts a verdict that took so long.
    pub(crate) fn record(&self, limiter: &Limiter, verdict: &Verdict, took: Duration) {
        self.check_duration.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let rules = self.rules.load();
        for row in verdict.rows() {
            self.without_store.count(row);
            match rules.find(&row.charge.rule) {
                Some(series) => series.count(row),
                None => self.record_new(limiter, row),
            }
        }
    }

    /// How many decisions were made without the store.
    pub(crate) fn without_store(&self) -> WithoutStore {
        self.without_store.read()
    }

    /// The same by rule, for those that made any.
    pub(crate) fn rules_without_store(&self) -> Vec<(Arc<str>, u64)> {
        let by_rule = |series: &Arc<RuleSeries>| (series.rule.shared_name(), series.without_store());
        self.rules.load().in_order.iter().map(by_rule).filter(|(_, count)| *count > 0).collect()
    }

    /// Counts a decision of `CL.THROTTLE` that took so long.
    pub(crate) fn record_throttle(&self, row: &Row, took: Duration) {
        self.check_duration.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.throttle.count(row);
    }

    /// Counts an answer of the RESP front. A command beyond those that were named counts as unknown.
    pub(crate) fn count_command(&self, command: usize, outcome: CommandOutcome) {
        self.commands.count(command, outcome);
    }

    /// Counts an answer of the HTTP front. A route that was not named counts as unknown.
    pub(crate) fn count_request(&self, route: &str, status: u16) {
        self.requests.count(route, status);
    }

    /// The first decision under rules that came into force since.
    #[cold]
    fn record_new(&self, limiter: &Limiter, row: &Row) {
        self.refresh(limiter);
        // A verdict by rules that were replaced meanwhile goes to the rule of the same name, if there still is one.
        if let Some(series) = self.rules.load().by_name(row.charge.rule.name()) {
            series.count(row);
        }
    }

    /// Makes series for the rules in force, keeping the counts of those that had one by name.
    fn refresh(&self, limiter: &Limiter) {
        let _alone = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = limiter.policy();
        let table = self.rules.load();
        if !table.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, &policy)) {
            self.rules.store(Arc::new(RuleTable::new(policy, &table)));
        }
    }

    /// Everything that is counted here, on a page of Prometheus' text format.
    pub(crate) fn write(&self, limiter: &Limiter, page: &mut Page) {
        self.refresh(limiter);
        let rules = self.rules.load();
        page.family("tollkeeper_decisions_total", "counter", "What each rule said to the requests that it applied to.");
        // Only where it is used: most have rules instead.
        let throttle = Some(&self.throttle).filter(|series| series.is_used());
        let all_series = || rules.in_order.iter().map(|series| &**series).chain(throttle);
        for series in all_series() {
            series.write_decisions(page);
        }
        page.family(
            "tollkeeper_remaining_ratio",
            "histogram",
            "The share of its limit that a rule had left after a decision.",
        );
        for series in all_series() {
            page.histogram(
                "tollkeeper_remaining_ratio",
                &format!("rule=\"{}\"", series.rule.name()),
                &series.remaining,
            );
        }
        page.family(
            "tollkeeper_rule_lacking_attribute_total",
            "counter",
            "Requests to which a rule did not apply because they lack an attribute that it needs.",
        );
        for (rule, count) in limiter.lacking() {
            page.sample("tollkeeper_rule_lacking_attribute_total", &format!("rule=\"{}\"", rule.name()), count);
        }
        page.family(
            "tollkeeper_check_duration_seconds",
            "histogram",
            "How long a decision took, all rules of a request together.",
        );
        page.histogram("tollkeeper_check_duration_seconds", "", &self.check_duration);
        page.family("tollkeeper_store_errors_total", "counter", "How often the store could not answer.");
        page.sample("tollkeeper_store_errors_total", "", limiter.store_errors());
        if let Store::Memory(memory) = limiter.store() {
            page.family("tollkeeper_keys", "gauge", "Keys that the memory store keeps.");
            page.sample("tollkeeper_keys", "", memory.len());
        }
        page.shared_store(limiter.store());
        page.family("tollkeeper_rules_loaded", "gauge", "Rules in force, also those that are switched off.");
        page.sample("tollkeeper_rules_loaded", "", rules.in_order.len());
        page.family("tollkeeper_http_requests_total", "counter", "Answers of the HTTP front.");
        self.requests.write(page);
        page.family("tollkeeper_resp_requests_total", "counter", "Answers of the RESP front.");
        self.commands.write(page);
        self.reloads.write(page);
    }
}

/// The series of each rule of one policy.
#[derive(Debug, Default)]
struct RuleTable {
    /// Kept, so that no other rule can come to live at an address of this table.
    policy: Option<Arc<Policy>>,
    in_order: Vec<Arc<RuleSeries>>,
    /// By the rule's address: finding the series of a decision compares a few integers and no names.
    by_address: Vec<(usize, Arc<RuleSeries>)>,
}

impl RuleTable {
    fn new(policy: Arc<Policy>, before: &RuleTable) -> RuleTable {
        let known: HashMap<&str, &Arc<RuleSeries>> =
            before.in_order.iter().map(|series| (series.rule.name(), series)).collect();
        let mut in_order = Vec::with_capacity(policy.rules().len());
        let mut by_address = Vec::with_capacity(policy.rules().len());
        for rule in policy.rules() {
            let series = match known.get(rule.name()) {
                Some(series) => Arc::clone(series),
                None => Arc::new(RuleSeries::new(rule.clone())),
            };
            by_address.push((address(rule), series.clone()));
            in_order.push(series);
        }
        by_address.sort_unstable_by_key(|(address, _)| *address);
        RuleTable { policy: Some(policy), in_order, by_address }
    }

    fn find(&self, rule: &Arc<Rule>) -> Option<&RuleSeries> {
        let found = self.by_address.binary_search_by_key(&address(rule), |(address, _)| *address).ok()?;
        Some(&self.by_address[found].1)
    }

    fn by_name(&self, name: &str) -> Option<&RuleSeries> {
        self.in_order.iter().find(|series| series.rule.name() == name).map(|series| &**series)
    }
}

fn address(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule).addr()
}

/// What is counted of one rule.
#[derive(Debug)]
struct RuleSeries {
    rule: Arc<Rule>,
    /// By outcome, then by source.
    decisions: [[AtomicU64; Source::ALL.len()]; OUTCOMES.len()],
    remaining: Histogram,
}

const OUTCOMES: [&str; 3] = ["allowed", "denied", "shadow_denied"];

impl RuleSeries {
    fn new(rule: Arc<Rule>) -> RuleSeries {
        RuleSeries { rule, decisions: Default::default(), remaining: Histogram::new(RATIO) }
    }

    fn count(&self, row: &Row) {
        let decision = &row.decision;
        let outcome = match (decision.is_allowed(), row.charge.rule.is_enforced()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        self.decisions[outcome][row.source as usize].fetch_add(1, Relaxed);
        let millionths = u64::from(decision.remaining) * 1_000_000 / u64::from(decision.limit.max(1));
        self.remaining.observe(millionths);
    }

    fn without_store(&self) -> u64 {
        let by = |source: Source| self.decisions.iter().map(move |counts| counts[source as usize].load(Relaxed));
        by(Source::Local).chain(by(Source::Policy)).sum()
    }

    fn is_used(&self) -> bool {
        self.decisions.iter().flatten().any(|count| count.load(Relaxed) > 0)
    }

    /// What cannot happen to a rule is left out; what can starts at 0, so that its first rise is seen as one.
    fn write_decisions(&self, page: &mut Page) {
        let may_deny = if self.rule.is_enforced() { 1 } else { 2 };
        for (outcome, (name, by_source)) in OUTCOMES.iter().zip(&self.decisions).enumerate() {
            for (source, count) in Source::ALL.iter().zip(by_source) {
                let count = count.load(Relaxed);
                let usual = *source == Source::Store && (outcome == 0 || outcome == may_deny);
                if count > 0 || usual {
                    let labels =
                        format!("rule=\"{}\",outcome=\"{name}\",source=\"{}\"", self.rule.name(), source.name());
                    page.sample("tollkeeper_decisions_total", &labels, count);
                }
            }
        }
    }
}

/// Answers by route and status: a table of counters for every status that exists, so that none has to be looked up.
#[derive(Debug)]
struct Requests {
    routes: &'static [&'static str],
    counts: Box<[AtomicU64]>,
}

impl Requests {
    const STATUSES: std::ops::Range<u16> = 100..600;
    const UNKNOWN: &'static str = "unknown";

    fn new(routes: &'static [&'static str]) -> Requests {
        let size = (routes.len() + 1) * Self::STATUSES.len();
        Requests { routes, counts: (0..size).map(|_| AtomicU64::new(0)).collect() }
    }

    fn count(&self, route: &str, status: u16) {
        let row = self.routes.iter().position(|known| *known == route).unwrap_or(self.routes.len());
        if Self::STATUSES.contains(&status) {
            let column = usize::from(status - Self::STATUSES.start);
            self.counts[row * Self::STATUSES.len() + column].fetch_add(1, Relaxed);
        }
    }

    fn write(&self, page: &mut Page) {
        let routes = self.routes.iter().copied().chain([Self::UNKNOWN]);
        for (route, counts) in routes.zip(self.counts.chunks(Self::STATUSES.len())) {
            for (status, count) in Self::STATUSES.zip(counts) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let labels = format!("route=\"{route}\",status=\"{status}\"");
                    page.sample("tollkeeper_http_requests_total", &labels, count);
                }
            }
        }
    }
}

/// The upper bounds of a histogram in whole units, as written in `le`, and how many units make one of what is shown.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    bounds: &'static [(u64, &'static str)],
    units: u64,
}

/// Nanoseconds, shown as seconds. A decision in memory takes less than a microsecond or few.
const DURATION: Buckets = Buckets {
    bounds: &[
        (1_000, "0.000001"),
        (2_500, "0.0000025"),
        (5_000, "0.000005"),
        (10_000, "0.00001"),
        (25_000, "0.000025"),
        (50_000, "0.00005"),
        (100_000, "0.0001"),
        (250_000, "0.00025"),
        (500_000, "0.0005"),
        (1_000_000, "0.001"),
        (2_500_000, "0.0025"),
        (5_000_000, "0.005"),
        (10_000_000, "0.01"),
        (25_000_000, "0.025"),
        (50_000_000, "0.05"),
        (100_000_000, "0.1"),
        (1_000_000_000, "1"),
    ],
    units: 1_000_000_000,
};

/// Millionths, shown as a share of 1; finest where a limit is nearly reached.
const RATIO: Buckets = Buckets {
    bounds: &[
        (0, "0"),
        (50_000, "0.05"),
        (100_000, "0.1"),
        (200_000, "0.2"),
        (350_000, "0.35"),
        (500_000, "0.5"),
        (750_000, "0.75"),
        (1_000_000, "1"),
    ],
    units: 1_000_000,
};

#[derive(Debug)]
struct Histogram {
    buckets: Buckets,
    /// One per bound, and one for what lies beyond all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    fn new(buckets: Buckets) -> Histogram {
        let counts = (0..=buckets.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, counts, sum: AtomicU64::new(0) }
    }

    fn observe(&self, value: u64) {
        let bucket = self.buckets.bounds.partition_point(|(bound, _)| *bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }
}

/// The text format, as far as it is needed. Labels are written as given: none of ours needs escaping.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    /// The text.
    pub(crate) fn text(self) -> String {
        self.0
    }

    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl fmt::Display) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let Buckets { bounds, units } = histogram.buckets;
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        let bounds = bounds.iter().map(|(_, text)| *text).chain(["+Inf"]);
        for (bound, count) in bounds.zip(&histogram.counts) {
            total += count.load(Relaxed);
            self.line(format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"));
        }
        let sum = histogram.sum.load(Relaxed) as f64 / units as f64;
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, total);
    }

    /// What there is to say about a store that others share; nothing has happened to one in this process.
    fn shared_store(&mut self, store: &Store) {
        let (breaker, traffic, leased, instances) = match store {
            Store::Redis(redis) => (redis.breaker(), redis.traffic(), redis.leased_tokens(), redis.instances()),
            _ => (BreakerState::Closed, Traffic::default(), 0, 1),
        };
        let state = match breaker {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        self.family("tollkeeper_breaker_state", "gauge", "0 calls go out, 1 one at a time tries, 2 none.");
        self.sample("tollkeeper_breaker_state", "", state);
        self.family("tollkeeper_batch_size", "summary", "Requests that went to the store in one call.");
        self.sample("tollkeeper_batch_size_sum", "", traffic.requests);
        self.sample("tollkeeper_batch_size_count", "", traffic.calls);
        self.family("tollkeeper_store_duration_seconds", "histogram", "How long calls to the store took.");
        let mut total = 0;
        let bounds = DURATION_BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string()).chain(["+Inf".to_string()]);
        for (bound, count) in bounds.zip(traffic.durations.iter().chain(std::iter::repeat(&0))) {
            total += count;
            self.line(format_args!("tollkeeper_store_duration_seconds_bucket{{le=\"{bound}\"}} {total}"));
        }
        self.sample("tollkeeper_store_duration_seconds_sum", "", traffic.total.as_secs_f64());
        self.sample("tollkeeper_store_duration_seconds_count", "", total);
        self.family("tollkeeper_leased_tokens", "gauge", "Tokens taken from the store ahead of use and not yet spent.");
        self.sample("tollkeeper_leased_tokens", "", leased);
        self.family("tollkeeper_instances", "gauge", "Instances that share the store, by their last signs of life.");
        self.sample("tollkeeper_instances", "", instances);
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

#[cfg(test)]
mod tests;
