//! What a run found, as machines get it (`--json`). The terminal and the page show the same.

use std::thread;

use serde::Serialize;
use tollkeeper::{Enforcement, Rule, RuleSpec};

use crate::demand::{written, written_limit};
use crate::evidence::{Denied, Enough, Evidence, Few, Period};
use crate::finding::Finding;
use crate::hot_keys::{Hot, HotKeys};
use crate::journal::Journal;
use crate::lines::is_tried;
use crate::peaks::SPANS;
use crate::reader::{Log, Progress, ReadReport};
use crate::run::{self, Found, Options};
use crate::suggest::{self, Suggestion};
use crate::suspect::{KeyNote, Suspect, Usual};
use crate::timeline::{Counts, Timeline};
use crate::traffic::{Concentration, Traffic, top};
use crate::trial::Trial;

/// How a key is shown: a secret, or any key if that is wished, by its fingerprint only.
pub type Shown<'s> = &'s dyn Fn(&Rule, u16, &str) -> String;

/// Keys of a list.
const LISTED: usize = 20;
/// Shares of keys that a limit may deny.
const SHARES: [f64; 3] = [0.001, 0.01, 0.05];

/// What access logs tell.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Of this format; fields may be added.
    pub version: u32,
    /// What was read.
    pub read: ReadReport,
    /// The time covered, in seconds.
    pub seconds: u64,
    /// Requests that the rules would have denied; null without rules.
    pub denied: Option<u64>,
    /// Requests over time.
    pub timeline: TimelineReport,
    /// Requests by day of the week, Monday first, and hour, in UTC.
    pub week: [[Counts; 24]; 7],
    /// All requests by address; without rules, by other kinds of keys too.
    pub clients: Vec<KeysReport>,
    /// The busiest routes.
    pub routes: Vec<RouteReport>,
    /// Bots and scanners that stand out, by address.
    pub suspects: Vec<KeyReport>,
    /// What each rule would have done.
    pub rules: Vec<RuleReport>,
    /// Requests that no rule applies to.
    pub no_rule: Option<NoRuleReport>,
    /// Other rules in place of these.
    pub compared: Option<ComparedReport>,
    /// Rules for this traffic, where none were given.
    pub suggestion: Option<Suggestion>,
    /// What to know about these numbers.
    pub notes: Vec<String>,
}

/// Requests over time in equal spans.
#[derive(Debug, Clone, Serialize)]
pub struct TimelineReport {
    /// When the first span begins, in seconds since the epoch.
    pub begins: u64,
    /// How long a span is, in seconds.
    pub seconds: u64,
    /// What happened in each.
    pub spans: Vec<Counts>,
}

/// The keys of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct KeysReport {
    /// `address`, or the attribute.
    pub name: String,
    /// Requests that have such a key.
    pub requests: u64,
    /// Different keys: an estimate unless `exact`.
    pub keys: u64,
    /// Whether all keys were looked at; otherwise a sample.
    pub exact: bool,
    /// One standard error of a share of keys, 0 to 1; 0 if exact.
    pub error_of_share: f64,
    /// The most requests of a key in one second, minute and hour of the clock.
    pub rates: Rates,
    /// Keys with most requests.
    pub busiest: Vec<KeyReport>,
    /// The fewest of these that make at least 30 % of all requests together, and their share.
    pub concentration: Option<Concentration>,
}

/// How keys are spread over rates.
#[derive(Debug, Clone, Serialize)]
pub struct Rates {
    /// In the busiest second of each key.
    pub second: Quantiles,
    /// In the busiest minute of each key.
    pub minute: Quantiles,
    /// In the busiest hour of each key.
    pub hour: Quantiles,
}

/// Of all keys, what half, 90 %, 99 % and 99.9 % of them do not exceed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of the keys.
    pub p50: u32,
    /// 90 % of the keys.
    pub p90: u32,
    /// 99 % of the keys.
    pub p99: u32,
    /// 99.9 % of the keys.
    pub p999: u32,
    /// The most of any key that was looked at.
    pub most: u32,
    /// How many keys have up to 1, 2, 4, 8 and so on.
    pub keys_up_to_powers_of_two: Vec<u64>,
}

/// One key.
#[derive(Debug, Clone, Serialize)]
pub struct KeyReport {
    /// The key, or its fingerprint.
    pub key: String,
    /// Its requests, or its denials in a list of denied keys: at least this many.
    pub requests: u64,
    /// By how much that may be too low.
    pub error: u64,
    /// Its share of all of these, 0 to 1.
    pub share: f64,
    /// Requests of it that would have been denied.
    pub denied: u64,
    /// In its busiest second, minute and hour.
    pub most: [u32; 3],
    /// Different user agents, about; many mean that many people share the address.
    pub agents: u64,
    /// Different routes, about.
    pub routes: u64,
    /// Why it looks like a bot or a scanner.
    pub suspect: Option<Suspect>,
}

/// One route.
#[derive(Debug, Clone, Serialize)]
pub struct RouteReport {
    /// Such as `GET /users/{id}`.
    pub route: String,
    /// Its requests.
    pub requests: u64,
    /// Their share of all, 0 to 1.
    pub share: f64,
    /// Answered with 4xx.
    pub refused: u64,
    /// Answered with 5xx.
    pub failed: u64,
}

/// What a rule would have done.
#[derive(Debug, Serialize)]
pub struct RuleReport {
    /// Its name.
    pub rule: String,
    /// Its limit as written: `100/min with burst 20`.
    pub limit: String,
    /// `enforce`, `shadow` or `annotate`.
    pub mode: String,
    /// Whether a log can tell what it does; then the rest is about nothing.
    pub tried: bool,
    /// Who its keys are.
    pub keys: KeysReport,
    /// Requests that it would have denied.
    pub denied: u64,
    /// Keys that it would have denied at least once: an estimate unless exact.
    pub keys_denied: u64,
    /// Their share, 0 to 1.
    pub share_of_keys_denied: f64,
    /// Keys with most denials.
    pub who: Vec<KeyReport>,
    /// How long denied requests would have had to wait.
    pub waits: Option<Waits>,
    /// Requests over time.
    pub timeline: TimelineReport,
    /// The span with most denials: when it begins, in seconds since the epoch, and how many.
    pub worst: Option<(u64, u64)>,
    /// Whether that looks like abuse or like customers.
    pub finding: Finding,
    /// Limits that would deny few keys, each tried on these requests.
    pub instead: Vec<Instead>,
    /// Which of `keys.rates` its period is compared with: 0 second, 1 minute, 2 hour.
    pub rate: usize,
}

/// How long denied requests would have had to wait, in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Waits {
    /// Half of them.
    pub p50_us: u64,
    /// 99 % of them.
    pub p99_us: u64,
    /// The longest.
    pub longest_us: u64,
    /// Requests that could never pass, because they cost more than the limit.
    pub never: u64,
}

/// Another limit for the same rule.
#[derive(Debug, Clone, Serialize)]
pub struct Instead {
    /// It denies at most this share of keys.
    pub at_most: f64,
    /// Such as `120/min`.
    pub limit: String,
    /// For algorithms that have one.
    pub burst: Option<u32>,
    /// Both as a text.
    pub written: String,
    /// The share of keys that it would have denied, 0 to 1.
    pub share_of_keys_denied: f64,
    /// The share of requests that it would have denied, 0 to 1.
    pub share_of_requests_denied: f64,
    /// Requests that it was tried on.
    pub requests: u64,
    /// Whether these are all; otherwise all of some keys.
    pub exact: bool,
}

/// Requests that no rule applies to.
#[derive(Debug, Clone, Serialize)]
pub struct NoRuleReport {
    /// How many.
    pub requests: u64,
    /// Their share, 0 to 1.
    pub share: f64,
    /// Their busiest routes.
    pub routes: Vec<RouteReport>,
}

/// Other rules on the same requests.
#[derive(Debug, Serialize)]
pub struct ComparedReport {
    /// Requests that the rules would have denied.
    pub denied: u64,
    /// Requests that the other rules would have denied.
    pub denied_with_other: u64,
    /// What each of the other rules would have done.
    pub rules: Vec<RuleReport>,
    /// Addresses whose requests pass with the other rules.
    pub gaining: Vec<KeyReport>,
    /// Requests that pass with the other rules only.
    pub gained: u64,
    /// Addresses whose requests pass no longer.
    pub losing: Vec<KeyReport>,
    /// Requests that the other rules alone deny.
    pub lost: u64,
}

impl Report {
    /// Reads logs and tells what they say.
    ///
    /// # Panics
    /// Never, unless a rule that is built in is invalid.
    #[must_use]
    pub fn of(logs: Vec<Log>, options: Options, progress: &Progress, shown: Shown<'_>) -> Report {
        let zoneless = logs.iter().any(Log::is_zoneless);
        #[expect(clippy::expect_used, reason = "rules that are built in")]
        let found = run::run(logs, options, progress).expect("built-in rules are valid");
        Report::told(found, zoneless, shown)
    }

    /// What a run found, put together.
    pub(crate) fn told(found: Found, zoneless: bool, shown: Shown<'_>) -> Report {
        let seconds = (found.read.last_us - found.read.first_us) / 1_000_000 + 1;
        let usual = found.clients.usual();
        let suspects = suspects(&found.clients, usual, shown);
        let clients = std::iter::once(&found.clients).chain(&found.kinds).filter(|kind| kind.requests > 0);
        let total = found.read.requests;
        let rules = |trial: &Trial| rules(trial, seconds, shown);
        Report {
            version: 1,
            seconds,
            denied: found.trial.as_ref().map(|trial| trial.engine.denied),
            timeline: timeline(&found.clients.timeline),
            week: found.overall.week,
            clients: clients.map(|kind| keys(kind, shown)).collect(),
            routes: routes(&found, total, |counts| counts.requests),
            suspects,
            rules: found.trial.as_ref().map(rules).unwrap_or_default(),
            no_rule: found.trial.as_ref().map(|trial| NoRuleReport {
                requests: trial.engine.no_rule,
                share: trial.engine.no_rule as f64 / total.max(1) as f64,
                routes: routes(&found, trial.engine.no_rule, |counts| counts.no_rule),
            }),
            compared: found.compared.as_ref().map(|other| compared(&found, other, seconds, shown)),
            suggestion: match found.trial {
                None => suggest::suggest(&found, seconds),
                Some(_) => None,
            },
            notes: notes(&found, zoneless),
            read: found.read,
        }
    }

    /// Leaves out what unreadable lines say: it may name clients.
    pub fn hide_lines(&mut self) {
        for bad in &mut self.read.first_unreadable {
            bad.text.clear();
            bad.reason = without_quotations(&bad.reason);
        }
    }

    /// The largest share of keys that an enforced rule would have denied, with its name.
    #[must_use]
    pub fn most_denied_keys(&self) -> Option<(&str, f64)> {
        let enforced = self.rules.iter().filter(|rule| rule.tried && rule.mode == "enforce");
        let shares = enforced.map(|rule| (rule.rule.as_str(), rule.share_of_keys_denied));
        shares.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// A reason without what it quotes of the line. Quotes within a quotation are escaped.
fn without_quotations(reason: &str) -> String {
    let mut shown = String::new();
    let mut characters = reason.chars();
    while let Some(character) = characters.next() {
        if !matches!(character, '"' | '`') {
            shown.push(character);
            continue;
        }
        shown.push_str("...");
        while let Some(quoted) = characters.next().filter(|quoted| *quoted != character) {
            if quoted == '\\' {
                characters.next();
            }
        }
    }
    shown
}

fn notes(found: &Found, zoneless: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if found.read.spread_over_their_second > 0 {
        notes.push(
            "times are whole seconds: requests of one second were spread evenly over it, in the order of their lines"
                .to_owned(),
        );
    }
    if zoneless {
        notes.push("times in this format have no time zone: read as UTC, or with --utc-offset".to_owned());
    }
    let trials = [found.trial.as_ref(), found.compared.as_ref()];
    for trial in trials.into_iter().flatten() {
        for rule in trial.policy().rules().iter().filter(|rule| rule.is_active() && !is_tried(rule)) {
            notes.push(format!(
                "rule `{}`: a concurrency limit cannot be tried on past requests, because it is unknown when they \
                 would have ended",
                rule.name()
            ));
        }
        if trial.overflowed() > 0 {
            notes.push(format!(
                "{} decisions of new keys used a shared bucket, because more keys were in use at the same time than --max-keys allows: raise it",
                trial.overflowed()
            ));
        }
    }
    if found.overall.routes.beyond() > 0 {
        notes.push(format!(
            "{} requests are on routes that did not fit in the table of routes",
            found.overall.routes.beyond()
        ));
    }
    notes
}

fn timeline(timeline: &Timeline) -> TimelineReport {
    TimelineReport { begins: timeline.begins(), seconds: timeline.seconds(), spans: timeline.spans().to_vec() }
}

fn routes(found: &Found, total: u64, by: fn(&crate::routes::Counts) -> u64) -> Vec<RouteReport> {
    let busiest = found.overall.routes.busiest(LISTED, by).into_iter();
    let report = |(route, counts): (String, crate::routes::Counts)| RouteReport {
        route: route.chars().take(120).collect(),
        requests: by(&counts),
        share: by(&counts) as f64 / total.max(1) as f64,
        refused: counts.refused,
        failed: counts.failed,
    };
    busiest.map(report).collect()
}

/// A key of a list that has `total` requests, with what is noted of it.
fn key(
    traffic: &Traffic,
    hot: &Hot<impl Sized>,
    note: &KeyNote,
    total: u64,
    usual: Usual,
    shown: Shown<'_>,
) -> KeyReport {
    // The note begins when the key is one of the busiest, or is of its denials only; a key of the sample is known from its first request on.
    let sampled = traffic.census.get(hot.hash).copied().unwrap_or_default();
    let (noted, known) = (note.peaks.most(), sampled.peaks.most());
    KeyReport {
        key: shown(&traffic.rule, hot.variant, &hot.key),
        requests: hot.certain(),
        error: hot.error,
        share: hot.certain() as f64 / total.max(1) as f64,
        denied: note.denied.max(sampled.denied.into()),
        most: [0, 1, 2].map(|span| noted[span].max(known[span])),
        agents: note.agents(),
        routes: note.routes(),
        suspect: note.suspect(usual),
    }
}

fn suspects(clients: &Traffic, usual: Usual, shown: Shown<'_>) -> Vec<KeyReport> {
    let all = clients.suspects().into_iter().take(LISTED);
    all.map(|(hot, _)| key(clients, &hot, &hot.note, clients.requests, usual, shown)).collect()
}

fn keys(traffic: &Traffic, shown: Shown<'_>) -> KeysReport {
    let usual = traffic.usual();
    let hot = top(&traffic.hot, LISTED);
    let busiest: Vec<KeyReport> =
        hot.iter().map(|hot| key(traffic, hot, &hot.note, traffic.requests, usual, shown)).collect();
    KeysReport {
        name: traffic.rule.name().to_owned(),
        requests: traffic.requests,
        keys: traffic.census.keys(),
        exact: traffic.census.is_exact(),
        error_of_share: traffic.census.error_of_share(),
        rates: Rates { second: quantiles(traffic, 0), minute: quantiles(traffic, 1), hour: quantiles(traffic, 2) },
        concentration: traffic.concentration(),
        busiest,
    }
}

fn quantiles(traffic: &Traffic, span: usize) -> Quantiles {
    let mut most: Vec<u32> = traffic.census.iter().map(|(_, stats)| stats.peaks.most()[span]).collect();
    most.sort_unstable();
    let at = |share: f64| match most.len() {
        0 => 0,
        keys => most[((keys as f64 * share).ceil() as usize).clamp(1, keys) - 1],
    };
    let mut powers = Vec::new();
    for count in &most {
        let power = count.max(&1).next_power_of_two().ilog2() as usize;
        if powers.len() <= power {
            powers.resize(power + 1, 0);
        }
        powers[power] += 1;
    }
    Quantiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        most: at(1.0),
        keys_up_to_powers_of_two: powers,
    }
}

fn mode(spec: &RuleSpec) -> String {
    serde_json::to_value(spec.mode).ok().and_then(|mode| mode.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Trying other numbers takes longest, so all rules do it at the same time.
fn rules(trial: &Trial, seconds: u64, shown: Shown<'_>) -> Vec<RuleReport> {
    let tried = thread::scope(|scope| {
        let trying: Vec<_> =
            trial.rules.iter().map(|one| is_tried(&one.rule).then(|| scope.spawn(|| instead(one)))).collect();
        let found = trying.into_iter().map(|one| one.map(|one| one.join().unwrap_or_default()).unwrap_or_default());
        found.collect::<Vec<_>>()
    });
    trial.rules.iter().zip(tried).map(|(one, instead)| rule(one, instead, seconds, shown)).collect()
}

fn rule(traffic: &Traffic, instead: Vec<Instead>, seconds: u64, shown: Shown<'_>) -> RuleReport {
    let rule = &traffic.rule;
    let (quota, usual) = (rule.quota(), traffic.usual());
    let sampled = traffic.census.sampled().max(1) as f64;
    let keys_denied = traffic.census.iter().filter(|(_, stats)| stats.denied > 0).count() as f64;
    let share_of_keys_denied = keys_denied / sampled;
    let denied = top(&traffic.hot_denied, LISTED);
    let who = denied.iter().map(|hot| {
        let note = traffic.note(hot.hash).unwrap_or(&hot.note);
        key(traffic, hot, note, traffic.denied, usual, shown)
    });
    let who: Vec<KeyReport> = who.collect();
    let tried = is_tried(rule);
    let few = denied.iter().map(|hot| {
        let note = traffic.note(hot.hash).unwrap_or(&hot.note);
        let is_suspect = note.is_telling().then(|| note.suspect(usual).is_some());
        Denied { certain: hot.certain(), hammers: None, is_suspect }
    });
    let worst = traffic
        .timeline
        .spans()
        .iter()
        .enumerate()
        .max_by_key(|(place, span)| (span.denied, std::cmp::Reverse(*place)));
    let worst = worst.filter(|(_, span)| span.denied > 0);
    let evidence = Evidence {
        seconds,
        requests: traffic.requests,
        denied: traffic.denied,
        keys: traffic.census.keys(),
        keys_denied: (share_of_keys_denied * traffic.census.keys() as f64).round() as u64,
        share_of_keys_denied,
        exact: traffic.census.is_exact(),
        few: Few::explaining(few, traffic.denied, Few::EXPLAINED),
        enough: instead.iter().find(|one| one.at_most == 0.01 && traffic.denied > 0).map(|one| Enough {
            limit: one.limit.clone(),
            burst: one.burst,
            written: one.written.clone(),
            times: 0.0,
            share_of_keys_denied: one.share_of_keys_denied,
        }),
        one_key: rule.key().needs().next().is_none(),
        // These rules asked nobody to wait.
        mode: Enforcement::Shadow,
        period: Period::OfLog,
        ..Evidence::default()
    };
    RuleReport {
        rule: rule.name().to_owned(),
        limit: written(quota),
        mode: mode(rule.spec()),
        tried,
        keys: keys(traffic, shown),
        denied: traffic.denied,
        keys_denied: evidence.keys_denied,
        share_of_keys_denied,
        who,
        waits: (!traffic.waits.is_empty() || traffic.never > 0).then(|| Waits {
            p50_us: traffic.waits.quantile(0.5),
            p99_us: traffic.waits.quantile(0.99),
            longest_us: traffic.waits.largest(),
            never: traffic.never,
        }),
        timeline: timeline(&traffic.timeline),
        worst: worst
            .map(|(place, span)| (traffic.timeline.begins() + place as u64 * traffic.timeline.seconds(), span.denied)),
        finding: Finding::of(evidence, None).0,
        instead,
        rate: SPANS.iter().position(|span| quota.period().as_micros() <= span * 1_000_000).unwrap_or(2),
    }
}

fn instead(traffic: &Traffic) -> Vec<Instead> {
    let Some(by_key) = traffic.journal.as_ref().map(Journal::by_key) else { return Vec::new() };
    let found = by_key.sparing(traffic.rule.quota(), &SHARES);
    let instead = SHARES.into_iter().zip(found).filter_map(|(at_most, sparing)| {
        let sparing = sparing?;
        Some(Instead {
            at_most,
            limit: written_limit(&sparing.quota),
            burst: sparing.quota.algorithm().has_burst().then(|| sparing.quota.limit()),
            written: written(&sparing.quota),
            share_of_keys_denied: sparing.tried.share_of_keys(),
            share_of_requests_denied: sparing.tried.share_of_requests(),
            requests: sparing.tried.requests,
            exact: sparing.tried.exact,
        })
    });
    instead.collect()
}

fn compared(found: &Found, other: &Trial, seconds: u64, shown: Shown<'_>) -> ComparedReport {
    let (clients, usual) = (&found.clients, found.clients.usual());
    let list = |hot: &HotKeys<()>| {
        let all = top(hot, LISTED).into_iter().map(|one| {
            let note = clients.note(one.hash).cloned().unwrap_or_default();
            key(clients, &one, &note, hot.total(), usual, shown)
        });
        all.collect::<Vec<_>>()
    };
    ComparedReport {
        denied: found.trial.as_ref().map_or(0, |trial| trial.engine.denied),
        denied_with_other: other.engine.denied,
        rules: rules(other, seconds, shown),
        gaining: list(&found.overall.gaining),
        gained: found.overall.gaining.total(),
        losing: list(&found.overall.losing),
        lost: found.overall.losing.total(),
    }
}

#[cfg(test)]
mod tests;
