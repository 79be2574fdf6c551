//! Traffic that is described in a few lines, against rules: the real engine in virtual time, with clients that react to their denials.
//!
//! Clients are simulated one by one: each has its own pace, and a denial changes what it does next. The same scenario and seed give the same
//! answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper::{Descriptor, Limit, Policy, parse_span};

use crate::generator::Chance;
use crate::lines::Lines;
use crate::report::{Report, Shown, TimelineReport};
use crate::run::Found;
use crate::text::{Paint, one_rule};
use crate::timeline::Timeline;
use crate::trial::Outcome;
use crate::words::{counted, grouped, share};

/// Monday, 5 January 2026, 00:00 UTC: when simulated traffic begins.
const BEGINS_US: u64 = 1_767_571_200_000_000;
/// A larger simulation is refused.
const MOST_REQUESTS: f64 = 20_000_000.0;
/// How often one request is retried.
const MOST_RETRIES: u32 = 5;

/// Traffic to simulate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// How long it lasts: `10min`.
    #[serde(rename = "for")]
    pub lasts: String,
    /// The same seed gives the same traffic.
    #[serde(default = "one")]
    pub seed: u64,
    /// Groups of clients that behave alike.
    pub traffic: Vec<Group>,
}

fn one() -> u64 {
    1
}

/// Clients that behave alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What they are called.
    pub name: String,
    /// How many there are.
    #[serde(default = "one")]
    pub clients: u64,
    /// What each of them sends: `5/min`.
    pub rate: String,
    /// How their requests are spread over time.
    #[serde(default)]
    pub shape: Shape,
    /// What they do when they are denied.
    #[serde(default)]
    pub retries: Retries,
    /// When they begin, after the start; at once by default.
    #[serde(default)]
    pub from: Option<String>,
    /// When they end; with the scenario by default.
    #[serde(default)]
    pub until: Option<String>,
    /// What their requests have beside `ip` and `user_id`, which each client has for itself.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// How requests are spread over time, at the same rate on average.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shape {
    /// At random, independently of each other, as people do.
    #[default]
    Random,
    /// Evenly, as a program does.
    Steady,
    /// Ten at once, then a pause.
    Bursts,
    /// All clients at the same moments, as after an outage or by cron.
    Together,
    /// Few at the ends and most in the middle, as over a day.
    Diurnal,
}

/// What clients do when they are denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Retries {
    /// Give up.
    #[default]
    Never,
    /// Wait for as long as `Retry-After` says.
    Honour,
    /// Try again every 100 ms, whatever `Retry-After` says.
    Hammer,
}

/// What became of a group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// How many clients it has.
    pub clients: u64,
    /// Requests, retries included.
    pub requests: u64,
    /// Those that were retries.
    pub retries: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// What clients wanted: requests without retries.
    pub wanted: u64,
    /// What they got, at once or after retries.
    pub served: u64,
    /// Over time.
    pub timeline: TimelineReport,
}

/// What a simulation found.
#[derive(Debug, Serialize)]
pub struct Simulated {
    /// By group.
    pub groups: Vec<GroupReport>,
    /// By rule, and all the rest of a report.
    pub report: Report,
}

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadScenario(String);

/// A group with its texts understood.
struct Pace {
    interval_us: f64,
    from_us: u64,
    until_us: u64,
    shape: Shape,
    retries: Retries,
}

/// A request that is due. Ordered by time, then as it was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_us: u64,
    planned: u64,
    group: usize,
    client: u64,
    retry: u32,
}

impl Scenario {
    fn paces(&self) -> Result<Vec<Pace>, BadScenario> {
        let span = |field: &str, text: &str| {
            parse_span(text).map(|span| span.as_micros()).map_err(|error| BadScenario(format!("{field}: {error}")))
        };
        let lasts = span("for", &self.lasts)?;
        let mut expected = 0.0;
        let mut paces = Vec::new();
        for group in &self.traffic {
            let name = &group.name;
            let field = |field: &str| format!("traffic `{name}`: {field}");
            let rate: Limit = group.rate.parse().map_err(|error| BadScenario(format!("{}: {error}", field("rate"))))?;
            let period = rate.period.ok_or_else(|| {
                BadScenario(format!("{}: {:?} has no period; write 5/min", field("rate"), group.rate))
            })?;
            let from_us = group.from.as_deref().map(|text| span(&field("from"), text)).transpose()?.unwrap_or(0);
            let until_us = group.until.as_deref().map(|text| span(&field("until"), text)).transpose()?.unwrap_or(lasts);
            if rate.count == 0 || group.clients == 0 || from_us >= until_us || until_us > lasts {
                return Err(BadScenario(format!(
                    "traffic `{name}` sends nothing: its rate and clients must be above 0, and `from` before `until` within {}",
                    self.lasts
                )));
            }
            let interval_us = period.as_micros() as f64 / f64::from(rate.count);
            expected += group.clients as f64 * (until_us - from_us) as f64 / interval_us;
            paces.push(Pace { interval_us, from_us, until_us, shape: group.shape, retries: group.retries });
        }
        if paces.is_empty() {
            return Err(BadScenario("`traffic` is empty: describe at least one group of clients".to_owned()));
        }
        if expected > MOST_REQUESTS {
            return Err(BadScenario(format!(
                "this makes about {} requests; at most {} are simulated: lower the rates, the clients or the time",
                grouped(expected as u64),
                grouped(MOST_REQUESTS as u64)
            )));
        }
        Ok(paces)
    }
}

impl Pace {
    /// When a client sends its first request, and after one the next.
    fn next(&self, last: Option<u64>, sent: u64, chance: &mut Chance) -> Option<u64> {
        let interval = self.interval_us;
        let at = match (self.shape, last) {
            (Shape::Together, None) => self.from_us as f64,
            (Shape::Together, Some(last)) => last as f64 + interval,
            (Shape::Steady, None) => self.from_us as f64 + chance.share() * interval,
            (Shape::Steady, Some(last)) => last as f64 + interval,
            (Shape::Bursts, None) => self.from_us as f64 + chance.share() * interval * BURST as f64,
            (Shape::Bursts, Some(last)) if !sent.is_multiple_of(BURST) => last as f64 + 2_000.0,
            (Shape::Bursts, Some(last)) => last as f64 + interval * BURST as f64,
            (Shape::Random, last) => last.unwrap_or(self.from_us) as f64 + exponential(chance) * interval,
            (Shape::Diurnal, last) => {
                // Thinning (Lewis and Shedler 1979): drawn at the highest rate, kept with the share of it at that time.
                let mut at = last.unwrap_or(self.from_us) as f64;
                loop {
                    at += exponential(chance) * interval / 2.0;
                    let part = (at - self.from_us as f64) / (self.until_us - self.from_us) as f64;
                    if part >= 1.0 || chance.share() < (1.0 - (part * std::f64::consts::TAU).cos()) / 2.0 {
                        break at;
                    }
                }
            }
        };
        let at = at as u64;
        (at < self.until_us).then_some(at)
    }
}

/// Requests of a burst.
const BURST: u64 = 10;

fn exponential(chance: &mut Chance) -> f64 {
    -(1.0 - chance.share()).ln()
}

/// Simulates a scenario.
///
/// # Panics
/// Never, unless a rule that is built in is invalid.
pub fn simulate(scenario: &Scenario, policy: Policy, shown: Shown<'_>) -> Result<Simulated, BadScenario> {
    let paces = scenario.paces()?;
    let policy = Arc::new(policy);
    #[expect(clippy::expect_used, reason = "rules that are built in")]
    let mut found = Found::new(Some(policy.clone()), None, crate::MAX_KEYS, &[]).expect("built-in rules are valid");
    let mut chance = Chance::new(scenario.seed);
    let mut due = BinaryHeap::new();
    let mut planned = 0;
    let mut plan = |due: &mut BinaryHeap<Reverse<Due>>, at_us, group, client, retry| {
        planned += 1;
        due.push(Reverse(Due { at_us, planned, group, client, retry }));
    };
    for (group, pace) in paces.iter().enumerate() {
        for client in 0..scenario.traffic[group].clients {
            if let Some(at) = pace.next(None, 0, &mut chance) {
                plan(&mut due, at, group, client, 0);
            }
        }
    }
    let mut groups: Vec<GroupReport> = scenario.traffic.iter().map(GroupReport::new).collect();
    let mut timelines: Vec<Timeline> = vec![Timeline::default(); groups.len()];
    let mut sent: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    while let Some(Reverse(one)) = due.pop() {
        let Due { at_us, group, client, retry, .. } = one;
        let request = request_of(&scenario.traffic[group], group, client);
        let mut lines = Lines::default();
        lines.add(&policy, &request, "simulated /").map_err(BadScenario)?;
        let now = BEGINS_US + at_us;
        found.read.first_us = if found.read.requests == 0 { now } else { found.read.first_us };
        (found.read.requests, found.read.last_us) = (found.read.requests + 1, now);
        let is_denied = found.add(now, lines) == Outcome::Denied;
        let told = &mut groups[group];
        told.requests += 1;
        timelines[group].add(now, is_denied);
        let pace = &paces[group];
        if retry == 0 {
            told.wanted += 1;
            let count = sent.entry((group, client)).or_default();
            *count += 1;
            if let Some(next) = pace.next(Some(at_us), *count, &mut chance) {
                plan(&mut due, next, group, client, 0);
            }
        } else {
            told.retries += 1;
        }
        if !is_denied {
            told.served += 1;
            continue;
        }
        told.denied += 1;
        let again = match pace.retries {
            Retries::Never => None,
            Retries::Honour => {
                let wait = found.trial.as_ref().and_then(|trial| trial.engine.wait());
                wait.map(|wait| at_us + wait.as_micros().max(1))
            }
            Retries::Hammer => Some(at_us + 100_000),
        };
        if let Some(again) = again.filter(|again| retry < MOST_RETRIES && *again < pace.until_us) {
            plan(&mut due, again, group, client, retry + 1);
        }
    }
    for (told, timeline) in groups.iter_mut().zip(&timelines) {
        told.timeline =
            TimelineReport { begins: timeline.begins(), seconds: timeline.seconds(), spans: timeline.spans().to_vec() };
    }
    found.read.formats = vec![("simulation".to_owned(), 1)];
    Ok(Simulated { groups, report: Report::told(found, false, shown) })
}

fn request_of(group: &Group, place: usize, client: u64) -> Descriptor {
    let mut attributes = group.attributes.clone();
    let ip = || format!("10.{}.{}.{}", place % 256, client >> 8 & 0xff, client & 0xff);
    attributes.entry("ip".to_owned()).or_insert_with(ip);
    attributes.entry("user_id".to_owned()).or_insert_with(|| format!("{}-{client}", group.name));
    attributes.into()
}

impl GroupReport {
    fn new(group: &Group) -> GroupReport {
        GroupReport {
            name: group.name.clone(),
            clients: group.clients,
            requests: 0,
            retries: 0,
            denied: 0,
            wanted: 0,
            served: 0,
            timeline: TimelineReport { begins: 0, seconds: 1, spans: Vec::new() },
        }
    }
}

impl Simulated {
    /// For a terminal.
    #[must_use]
    pub fn summary(&self, paint: Paint) -> String {
        let mut out = format!("{} simulated\n\n", counted(self.report.read.requests, "request"));
        let head =
            format!("{:<24} {:>9} {:>11} {:>11} {:>9} {:>11}\n", "who", "clients", "wanted", "served", "", "retries");
        out.push_str(&paint.dim(&head));
        for group in &self.groups {
            let _ = writeln!(
                out,
                "{:<24} {:>9} {:>11} {:>11} {:>9} {:>11}",
                group.name.chars().take(24).collect::<String>(),
                grouped(group.clients),
                grouped(group.wanted),
                grouped(group.served),
                share(group.served as f64 / group.wanted.max(1) as f64),
                grouped(group.retries)
            );
        }
        self.report.rules.iter().for_each(|rule| one_rule(&mut out, rule, paint));
        if let Some(no_rule) = self.report.no_rule.as_ref().filter(|no_rule| no_rule.requests > 0) {
            let _ = writeln!(out, "\nNo rule applies to {}", counted(no_rule.requests, "request"));
        }
        self.report.notes.iter().for_each(|note| out.push_str(&paint.dim(&format!("note: {note}\n"))));
        out
    }

    /// Each group over time, admitted and denied, as SVG.
    #[must_use]
    pub fn picture(&self) -> String {
        // Narrow, with large letters, so that it can be read on a phone.
        const WIDTH: f64 = 480.0;
        const LEFT: f64 = 20.0;
        const LANE: f64 = 118.0;
        let height = 64.0 + LANE * self.groups.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"Simulated traffic, admitted and denied\">\n"
        );
        svg.push_str(STYLE);
        let _ = writeln!(svg, "<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"10\"/>");
        svg.push_str(
            "<circle class=\"yes\" cx=\"26\" cy=\"29\" r=\"5\"/><text x=\"38\" y=\"34\">admitted</text><circle class=\"no\" cx=\"126\" cy=\"29\" r=\"5\"/><text x=\"138\" y=\"34\">denied</text>\n",
        );
        let begins =
            self.groups.iter().filter(|one| one.requests > 0).map(|one| one.timeline.begins).min().unwrap_or(0);
        let end = |one: &GroupReport| one.timeline.begins + one.timeline.seconds * one.timeline.spans.len() as u64;
        let ends = self.groups.iter().map(end).max().unwrap_or(1).max(begins + 1);
        let x = |second: u64| LEFT + (second - begins) as f64 / (ends - begins) as f64 * (WIDTH - 2.0 * LEFT);
        for (place, group) in self.groups.iter().enumerate() {
            let floor = 56.0 + LANE * (place as f64 + 1.0) - 14.0;
            let most = group.timeline.spans.iter().map(|span| span.requests).max().unwrap_or(1).max(1);
            let _ = writeln!(
                svg,
                "<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
                floor - LANE + 34.0,
                escaped(&group.name)
            );
            let served = share(group.served as f64 / group.wanted.max(1) as f64);
            let (end, line) = (WIDTH - LEFT, floor - LANE + 34.0);
            let _ = writeln!(svg, "<text x=\"{end}\" y=\"{line:.1}\" text-anchor=\"end\">{served} served</text>");
            let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {floor:.1} H{end}\"/>");
            let width = (x(begins + group.timeline.seconds) - LEFT).max(0.8);
            for (index, span) in group.timeline.spans.iter().enumerate().filter(|(_, span)| span.requests > 0) {
                let left = x(group.timeline.begins + index as u64 * group.timeline.seconds);
                let tall = |count: u64| count as f64 / most as f64 * (LANE - 46.0);
                let (admitted, denied) = (tall(span.requests - span.denied), tall(span.denied));
                let _ = writeln!(
                    svg,
                    "<rect class=\"yes\" x=\"{left:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{admitted:.2}\"/>",
                    floor - admitted
                );
                if span.denied > 0 {
                    let _ = writeln!(
                        svg,
                        "<rect class=\"no\" x=\"{left:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{denied:.2}\"/>",
                        floor - admitted - denied
                    );
                }
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

const STYLE: &str = "<style>text{font:15px system-ui,sans-serif;fill:#5d6675}.name{font-weight:600;fill:#1b1f27}.paper{fill:#fff}.yes{fill:#3b76d6}.no{fill:#d1462f}.axis{stroke:#cfd5de;fill:none}\n@media(prefers-color-scheme:dark){text{fill:#9aa5b6}.name{fill:#e7ebf2}.paper{fill:#11151c}.yes{fill:#6ea2f2}.no{fill:#f0765f}.axis{stroke:#2b3341}}</style>\n";

fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).take(24).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use tollkeeper::Rule;

    use super::*;

    fn plain(_: &Rule, _: u16, key: &str) -> String {
        key.to_owned()
    }

    fn group(name: &str, rate: &str, shape: Shape, retries: Retries) -> Group {
        Group {
            name: name.to_owned(),
            clients: 1,
            rate: rate.to_owned(),
            shape,
            retries,
            from: None,
            until: None,
            attributes: BTreeMap::new(),
        }
    }

    fn run(lasts: &str, traffic: Vec<Group>, limit: &str, burst: u64) -> Simulated {
        let policy = Policy::new([Rule::new("per-user").key("{user_id}").limit(limit).burst(burst)]).expect("rules");
        let scenario = Scenario { lasts: lasts.to_owned(), seed: 1, traffic };
        simulate(&scenario, policy, &plain).expect("a scenario")
    }

    #[test]
    fn a_client_that_waits_is_served_and_one_that_hammers_is_not() {
        let twice = |name: &str, retries| group(name, "2/s", Shape::Steady, retries);
        let told = run("100s", vec![twice("gives-up", Retries::Never), twice("hammers", Retries::Hammer)], "1/s", 1);
        let [never, hammer] = &told.groups[..] else { panic!("two groups") };
        assert_eq!((never.wanted, never.served), (200, 100), "every second one");
        assert!(hammer.retries > 200 && hammer.served <= 101, "{hammer:?}");
        // Below its limit on average, in bursts above it: waiting gets everything through.
        let bursty = |retries| group("bursty", "30/min", Shape::Bursts, retries);
        let served = |retries| {
            let told = run("10min", vec![bursty(retries)], "60/min", 5);
            told.groups[0].served as f64 / told.groups[0].wanted as f64
        };
        assert!(served(Retries::Never) < 0.7, "{}", served(Retries::Never));
        assert!(served(Retries::Honour) > served(Retries::Never) + 0.1, "{}", served(Retries::Honour));
    }

    #[test]
    fn shapes_have_their_rate() {
        for shape in [Shape::Random, Shape::Steady, Shape::Bursts, Shape::Together, Shape::Diurnal] {
            let traffic = vec![Group { clients: 50, ..group("all", "30/min", shape, Retries::Never) }];
            let told = run("10min", traffic, "1000/s", 1_000);
            let wanted = told.groups[0].wanted;
            assert!((13_500..=16_500).contains(&wanted), "{shape:?}: {wanted} of 15,000");
            assert_eq!(told.groups[0].served, wanted);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_answer_and_a_picture() {
        let told = || run("1min", vec![group("a<b", "5/s", Shape::Random, Retries::Honour)], "2/s", 2);
        assert_eq!(serde_json::to_string(&told()).expect("JSON"), serde_json::to_string(&told()).expect("JSON"));
        let svg = told().picture();
        assert!(svg.contains("a&lt;b") && svg.contains("class=\"no\"") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(told().summary(Paint::Plain).contains("per-user  2/s"));
    }

    #[test]
    fn a_bad_scenario_says_what_is_wrong() {
        let wrong = |lasts: &str, traffic: Vec<Group>| {
            let scenario = Scenario { lasts: lasts.to_owned(), seed: 1, traffic };
            simulate(&scenario, Policy::default(), &plain).expect_err("refused").to_string()
        };
        let fine = || group("a", "5/s", Shape::Random, Retries::Never);
        assert!(wrong("soon", vec![fine()]).starts_with("for: "));
        assert!(wrong("1min", Vec::new()).contains("`traffic` is empty"));
        assert!(wrong("1min", vec![Group { rate: "5".to_owned(), ..fine() }]).contains("write 5/min"));
        assert!(wrong("1min", vec![Group { from: Some("2min".to_owned()), ..fine() }]).contains("sends nothing"));
        assert!(wrong("30day", vec![Group { clients: 1_000_000, ..fine() }]).contains("at most 20,000,000"));
    }
}
