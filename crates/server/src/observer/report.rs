//! The answer of `GET /v1/insight`: all that the dashboard and `tollkeeper top` need.

mod advice;
mod latency;
mod store;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::{Enforcement, Limiter, Rule, Span, Timestamp};
use tollkeeper_tune::{Behaviour, Finding, Hot};

use crate::audit::{Audit, Violation};
use crate::example;
use crate::insight::{Insight, NoRuleFinding, RuleInsight};
use crate::metrics::{Metrics, Outcomes, RequestCounts};
use crate::moment::Moment;
use crate::privacy::Privacy;
use advice::Advice;
use latency::LatencyReport;
use store::StoreReport;

/// Rules that are shown; of more, the busiest.
const MOST_RULES: usize = 256;
/// Keys that are shown of each rule.
const MOST_KEYS: usize = 10;
/// Violations that are shown.
const RECENT: usize = 20;
/// Rates are averages over this many of the last whole seconds.
const RATE_SECONDS: usize = 10;

/// The state of the service and its traffic.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Insight")]
pub(crate) struct Report {
    /// The version of the service.
    version: &'static str,
    /// This process; the numbers are for it alone.
    instance: String,
    /// The time of the report.
    #[schemars(extend("format" = "date-time"))]
    at: Moment,
    /// How long the service has run.
    uptime_seconds: u64,
    /// Whether traffic is analysed. If not, there are totals only.
    observing: bool,
    /// All requests.
    totals: Totals,
    /// What became of requests over time.
    requests: RequestsReport,
    /// What stands out beyond single rules, such as traffic that no rule matches.
    findings: Vec<NoRuleFinding>,
    /// How long decisions took, all rules of a request together.
    latency: LatencyReport,
    /// Where state lives.
    store: StoreReport,
    /// How many rules are in force.
    rules_loaded: usize,
    /// Each rule in file order; of very many the busiest.
    rules: Vec<RuleReport>,
    /// The last violations, the newest first.
    violations: Vec<Violation>,
    /// What did not fit and is missing here.
    dropped: Dropped,
    /// The attributes of a request that a rule applies to, to try the service with.
    example: BTreeMap<String, String>,
}

/// Requests since the start, each counted once; and the decisions about them, one for each rule that applied.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Totals {
    /// All requests: the sum of the next five.
    requests: u64,
    /// Let pass by all rules that apply.
    allowed: u64,
    /// Denied by a limit or an exception. What shadow rules would have denied is not included.
    denied: u64,
    /// Let pass because no rule applies.
    no_rule: u64,
    /// Neither allowed nor denied, because too many were waiting.
    shed: u64,
    /// Not decided: a bad request, or the store is unreachable and a rule fails closed.
    error: u64,
    /// The share of requests that were denied, 0 to 1.
    share_denied: f64,
    /// Requests per second over the last ten seconds.
    requests_per_second: f64,
    /// Denied requests per second over the last ten seconds.
    denied_per_second: f64,
    /// Requests per second that no rule applies to, over the last ten seconds.
    no_rule_per_second: f64,
    /// Decisions: one for each rule that applied to a request.
    decisions: u64,
    /// Decisions of shadow rules that would have denied the request.
    shadow_denied: u64,
    /// Decisions of soft limits (`mode: annotate`) that the request was over. It passed, marked for the upstream.
    annotated: u64,
    /// Decisions per second over the last ten seconds.
    decisions_per_second: f64,
}

/// What became of requests over time.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct RequestsReport {
    /// Each of up to 300 seconds, the oldest first; the last has just begun. Empty before the first request.
    seconds: RequestSeries,
    /// Each of up to 360 minutes.
    minutes: RequestSeries,
}

/// Requests by outcome, over time.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct RequestSeries {
    /// Let pass by rules.
    allowed: Vec<u64>,
    /// Denied.
    denied: Vec<u64>,
    /// Let pass because no rule applies.
    no_rule: Vec<u64>,
    /// Not decided: shed, bad requests, or a store that failed closed.
    undecided: Vec<u64>,
}

/// A rule and its traffic.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RuleInsight")]
struct RuleReport {
    /// The rule's name.
    name: String,
    /// The rule's label, if it has one.
    scope: Option<String>,
    /// `enforce`, `shadow` or another mode.
    mode: Enforcement,
    /// Whether it is switched on.
    active: bool,
    /// The template of its keys.
    key: String,
    /// Algorithm and numbers.
    limit: String,
    /// Requests that it let pass, since the start.
    allowed: u64,
    /// Requests that it denied, since the start.
    denied: u64,
    /// Requests that it would have denied if its mode were not `shadow`, since the start.
    shadow_denied: u64,
    /// Requests that were over it and passed, because its mode is `annotate`, since the start.
    annotated: u64,
    /// Allowed requests per second over the last ten seconds.
    allowed_per_second: f64,
    /// Denied requests per second.
    denied_per_second: f64,
    /// Requests per second that it would have denied.
    shadow_denied_per_second: f64,
    /// Requests per second that it annotated.
    annotated_per_second: f64,
    /// Each of up to 300 seconds, the oldest first; the last has just begun. Empty before the first decision.
    seconds: Series,
    /// Each of up to 360 minutes.
    minutes: Series,
    /// The keys with most requests in the last half hour to hour.
    hot_by_traffic: Vec<HotKey>,
    /// The keys with most denials.
    hot_by_denials: Vec<HotDeniedKey>,
    /// Attack, or a badly tuned limit? Null before the first decision.
    finding: Option<Finding>,
    /// What would help, if that is known.
    advice: Option<Advice>,
}

/// Counts over time.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Series {
    /// What passed.
    allowed: Vec<u64>,
    /// What was denied.
    denied: Vec<u64>,
    /// What a shadow rule would have denied.
    shadow_denied: Vec<u64>,
    /// What passed over a soft limit.
    annotated: Vec<u64>,
}

/// A busy key.
#[derive(Debug, Serialize, JsonSchema)]
struct HotKey {
    /// The key; a secret by its fingerprint.
    key: String,
    /// How many, at most.
    count: u64,
    /// It is at least `count - error`.
    error: u64,
}

/// A key that is often denied.
#[derive(Debug, Serialize, JsonSchema)]
struct HotDeniedKey {
    /// The key; a secret by its fingerprint.
    key: String,
    /// How many, at most.
    count: u64,
    /// It is at least `count - error`.
    error: u64,
    /// Waits that it kept before it came back.
    waits_kept: u32,
    /// Waits during which it retried.
    waits_broken: u32,
    /// An exception blocks it: these denials are not due to the limit.
    blocked: bool,
}

/// What is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Dropped {
    /// Decisions missing from hot keys and findings. Totals and series include them.
    pub(crate) decisions: u64,
    /// Denials missing from the audit.
    pub(crate) violations: u64,
}

/// Where the numbers come from.
#[derive(Clone, Copy)]
pub(super) struct Sources<'s> {
    pub(super) limiter: &'s Limiter,
    pub(super) metrics: &'s Metrics,
    /// If traffic is analysed.
    pub(super) insight: Option<&'s Insight>,
    pub(super) audit: &'s Audit,
    pub(super) privacy: &'s Privacy,
    pub(super) began: Timestamp,
    pub(super) dropped: Dropped,
}

impl Report {
    pub(super) fn new(sources: Sources<'_>) -> Report {
        let Sources { limiter, metrics, insight, audit, privacy, began, dropped } = sources;
        let now = limiter.store().now();
        let policy = limiter.policy();
        let outcomes = Counted::new(insight, metrics);
        let in_force = policy.rules().iter().map(|rule| &**rule);
        let mut rules: Vec<(&Rule, Outcomes)> =
            in_force.chain(metrics.built_in_rules()).map(|rule| (rule, outcomes.of(rule.name()))).collect();
        let mut totals = Totals::of(insight.map_or_else(|| metrics.requests(), Insight::requests_counted));
        for (_, outcomes) in &rules {
            totals.decisions += outcomes.total();
            totals.shadow_denied += outcomes.shadow_denied;
            totals.annotated += outcomes.annotated;
        }
        let busiest = busiest(&rules);
        rules.retain(|(_, outcomes)| outcomes.total() >= busiest);
        rules.truncate(MOST_RULES);
        let rules: Vec<RuleReport> = rules
            .into_iter()
            .map(|(rule, outcomes)| {
                let insight = insight.and_then(|insight| insight.rule(rule.name()));
                RuleReport::new(rule, outcomes, insight, privacy, now)
            })
            .collect();
        let per_second = |rule: &RuleReport| {
            let passed_over = rule.shadow_denied_per_second + rule.annotated_per_second;
            rule.allowed_per_second + rule.denied_per_second + passed_over
        };
        totals.decisions_per_second = rules.iter().map(per_second).sum();
        let requests = RequestsReport::new(insight, now.as_micros() / Span::SECOND.as_micros());
        totals.add_rates(&requests.seconds);
        Report {
            version: env!("CARGO_PKG_VERSION"),
            instance: audit.instance.to_string(),
            at: Moment(now),
            uptime_seconds: uptime(began, now),
            observing: insight.is_some(),
            totals,
            requests,
            findings: insight.and_then(|insight| insight.no_rule(now)).into_iter().collect(),
            latency: LatencyReport::new(insight, now.as_micros() / Span::SECOND.as_micros()),
            store: StoreReport::new(limiter),
            rules_loaded: policy.rules().len(),
            rules,
            violations: audit.recent(RECENT),
            dropped,
            example: example::attributes(&policy),
        }
    }
}

/// What each rule has decided: from its series if there is one, so that both agree.
enum Counted<'o> {
    Observed(&'o Insight),
    Totals(HashMap<Arc<str>, Outcomes>),
}

impl<'o> Counted<'o> {
    fn new(insight: Option<&'o Insight>, metrics: &Metrics) -> Counted<'o> {
        match insight {
            Some(insight) => Counted::Observed(insight),
            None => {
                let outcomes = metrics.outcomes().into_iter();
                Counted::Totals(outcomes.map(|(rule, outcomes)| (rule.shared_name(), outcomes)).collect())
            }
        }
    }

    fn of(&self, rule: &str) -> Outcomes {
        match self {
            Counted::Observed(insight) => insight.counted(rule),
            Counted::Totals(totals) => totals.get(rule).copied().unwrap_or_default(),
        }
    }
}

fn uptime(began: Timestamp, now: Timestamp) -> u64 {
    now.since(began).as_micros() / Span::SECOND.as_micros()
}

/// How many decisions a rule must have to be shown.
fn busiest(rules: &[(&Rule, Outcomes)]) -> u64 {
    let mut decisions: Vec<u64> = rules.iter().map(|(_, outcomes)| outcomes.total()).collect();
    decisions.sort_unstable_by(|a, b| b.cmp(a));
    decisions.get(MOST_RULES).copied().unwrap_or(0)
}

impl RuleReport {
    fn new(
        rule: &Rule,
        outcomes: Outcomes,
        insight: Option<&RuleInsight>,
        privacy: &Privacy,
        now: Timestamp,
    ) -> RuleReport {
        let second = now.as_micros() / Span::SECOND.as_micros();
        let shown = |variant: u16, key: &str| privacy.shown_key(rule, variant, key).into_owned();
        let traffic = insight.map(|insight| insight.by_traffic(MOST_KEYS)).unwrap_or_default();
        let denials = insight.map(|insight| insight.by_denials(MOST_KEYS)).unwrap_or_default();
        let blocks = insight.map(|insight| insight.by_blocks(MOST_KEYS)).unwrap_or_default();
        let seconds = insight.map(|insight| Series::of(insight.timeline.seconds(second))).unwrap_or_default();
        let finding = insight.map(|insight| insight.finding(rule, now));
        RuleReport {
            name: rule.name().to_string(),
            scope: rule.scope().map(str::to_string),
            mode: rule.mode(),
            active: rule.is_active(),
            key: rule.spec().key.clone(),
            limit: rule.quota().to_string(),
            allowed: outcomes.allowed,
            denied: outcomes.denied,
            shadow_denied: outcomes.shadow_denied,
            annotated: outcomes.annotated,
            allowed_per_second: rate(&seconds.allowed),
            denied_per_second: rate(&seconds.denied),
            shadow_denied_per_second: rate(&seconds.shadow_denied),
            annotated_per_second: rate(&seconds.annotated),
            seconds,
            minutes: insight.map(|insight| Series::of(insight.timeline.minutes(second))).unwrap_or_default(),
            hot_by_traffic: traffic
                .into_iter()
                .map(|Hot { variant, key, count, error, .. }| HotKey { key: shown(variant, &key), count, error })
                .collect(),
            hot_by_denials: most_denied(denials, blocks, shown),
            advice: finding
                .as_ref()
                .zip(insight)
                .and_then(|(finding, insight)| Advice::of(finding, insight, rule, privacy)),
            finding,
        }
    }
}

/// The keys with most denials, by the limit or by an exception that blocks them.
fn most_denied(
    denials: Vec<Hot<Behaviour>>,
    blocks: Vec<Hot<()>>,
    shown: impl Fn(u16, &str) -> String,
) -> Vec<HotDeniedKey> {
    let denied = denials.into_iter().map(|Hot { variant, key, count, error, note, .. }| {
        let Behaviour { kept: waits_kept, broken: waits_broken, .. } = note;
        HotDeniedKey { key: shown(variant, &key), count, error, waits_kept, waits_broken, blocked: false }
    });
    let blocked = blocks.into_iter().map(|Hot { variant, key, count, error, .. }| {
        let key = shown(variant, &key);
        HotDeniedKey { key, count, error, waits_kept: 0, waits_broken: 0, blocked: true }
    });
    let mut all: Vec<HotDeniedKey> = denied.chain(blocked).collect();
    all.sort_by_key(|hot| std::cmp::Reverse(hot.count - hot.error));
    all.truncate(MOST_KEYS);
    all
}

/// Over the last whole seconds: the current second would make it look lower.
fn rate(seconds: &[u64]) -> f64 {
    let whole = seconds.len().saturating_sub(1);
    let last = &seconds[whole.saturating_sub(RATE_SECONDS)..whole];
    last.iter().sum::<u64>() as f64 / RATE_SECONDS as f64
}

impl Series {
    fn of(slots: impl Iterator<Item = Outcomes>) -> Series {
        let mut series = Series::default();
        for Outcomes { allowed, denied, shadow_denied, annotated } in slots {
            series.allowed.push(allowed);
            series.denied.push(denied);
            series.shadow_denied.push(shadow_denied);
            series.annotated.push(annotated);
        }
        series
    }
}

impl Totals {
    fn of(counts: RequestCounts) -> Totals {
        let requests = counts.total();
        let RequestCounts { allowed, denied, no_rule, shed, error } = counts;
        let share_denied = if requests > 0 { denied as f64 / requests as f64 } else { 0.0 };
        Totals { requests, allowed, denied, no_rule, shed, error, share_denied, ..Totals::default() }
    }

    fn add_rates(&mut self, seconds: &RequestSeries) {
        let RequestSeries { allowed, denied, no_rule, undecided } = seconds;
        self.denied_per_second = rate(denied);
        self.no_rule_per_second = rate(no_rule);
        self.requests_per_second = self.denied_per_second + self.no_rule_per_second + rate(allowed) + rate(undecided);
    }
}

impl RequestsReport {
    fn new(insight: Option<&Insight>, second: u64) -> RequestsReport {
        let Some(requests) = insight.map(Insight::requests) else { return RequestsReport::default() };
        RequestsReport {
            seconds: RequestSeries::of(requests.seconds(second)),
            minutes: RequestSeries::of(requests.minutes(second)),
        }
    }
}

impl RequestSeries {
    fn of(slots: impl Iterator<Item = RequestCounts>) -> RequestSeries {
        let mut series = RequestSeries::default();
        for RequestCounts { allowed, denied, no_rule, shed, error } in slots {
            series.allowed.push(allowed);
            series.denied.push(denied);
            series.no_rule.push(no_rule);
            series.undecided.push(shed + error);
        }
        series
    }
}
