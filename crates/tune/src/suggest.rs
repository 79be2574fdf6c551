//! Rules for the traffic that was seen, each with its evidence: limits that nearly all keys stay below once those that look like bots are left
//! out, tried on the requests they are meant for.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde::Serialize;
use tollkeeper_core::Quota;

use crate::demand::{round_numbers, written, written_limit};
use crate::finding::percent;
use crate::run::Found;
use crate::traffic::Traffic;
use crate::tried::{ByKey, Sparing, Tried};
use crate::words::{counted, grouped};

/// The share of ordinary keys that a suggested limit may deny.
const SPARED: f64 = 0.001;
/// With fewer keys than this, the numbers say little.
const FEW_KEYS: usize = 20;
/// Routes to sign in that a rule names.
const MOST_ROUTES: usize = 8;

/// A rules file.
#[derive(Debug, Clone, Serialize)]
pub struct Suggestion {
    /// Its rules.
    pub rules: Vec<SuggestedRule>,
    /// The whole file, commented with the evidence.
    pub yaml: String,
}

/// A suggested rule.
#[derive(Debug, Clone, Serialize)]
pub struct SuggestedRule {
    /// Its name.
    pub name: String,
    /// Its key template.
    pub key: String,
    /// Paths that it is for; empty for all.
    pub paths: Vec<String>,
    /// `120/min with burst 40`.
    pub written: String,
    /// Why these numbers.
    pub evidence: Vec<String>,
    #[serde(skip)]
    quota: Quota,
}

/// Suggests rules; `None` when there is nothing to base them on.
pub(crate) fn suggest(found: &Found, seconds: u64) -> Option<Suggestion> {
    let mut rules = Vec::new();
    for kind in &found.kinds {
        // An attribute that hardly any request has says little about clients.
        if kind.requests * 20 >= found.read.requests {
            let name = unused(format!("per-{}", plain(kind.rule.name())), &rules);
            rules.extend(rule(kind, &name, &format!("{{{}}}", kind.rule.name()), Vec::new()));
        }
    }
    rules.extend(rule(&found.clients, "per-address", "{ip}", Vec::new()));
    let sign_in: Vec<String> = found
        .overall
        .routes
        .busiest(MOST_ROUTES, |counts| counts.sign_ins)
        .into_iter()
        .filter_map(|(route, _)| route.split_once(' ').map(|(_, path)| path.to_owned()))
        .filter(|path| path.starts_with('/') && !path.contains("**"))
        .collect();
    if !sign_in.is_empty() {
        let mut paths = sign_in;
        paths.sort();
        paths.dedup();
        rules.extend(found.sign_ins.as_ref().and_then(|traffic| rule(traffic, "sign-in", "{ip}", paths)));
    }
    if rules.is_empty() {
        return None;
    }
    let yaml = yaml(&rules, found, seconds);
    Some(Suggestion { rules, yaml })
}

/// A name that no rule has: `header.x-user` and `cookie.user` would both be `per-user`.
fn unused(name: String, rules: &[SuggestedRule]) -> String {
    let is_unused = |name: &String| rules.iter().all(|rule| rule.name != *name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_unused).unwrap_or(name)
}

/// `header.x-api-key` as a part of a name.
fn plain(attribute: &str) -> String {
    let last = attribute.rsplit_once('.').map_or(attribute, |(_, name)| name);
    last.trim_start_matches("x-").replace('_', "-")
}

fn rule(traffic: &Traffic, name: &str, key: &str, paths: Vec<String>) -> Option<SuggestedRule> {
    let by_key = traffic.journal.as_ref()?.by_key();
    let suspects: HashSet<u64> = traffic.suspects().iter().map(|(hot, _)| hot.hash).collect();
    let ordinary = by_key.without(|key| suspects.contains(&key));
    // When everybody looks suspect, nobody does.
    let (ordinary, suspects) =
        if ordinary.keys() == 0 { (by_key.clone(), HashSet::new()) } else { (ordinary, suspects) };
    let sparing = limit(&ordinary, traffic, &suspects)?;
    let all = by_key.run(&sparing.quota);
    Some(SuggestedRule {
        name: name.to_owned(),
        key: key.to_owned(),
        paths,
        written: written(&sparing.quota),
        evidence: evidence(traffic, &ordinary, &sparing, all, &suspects),
        quota: sparing.quota,
    })
}

/// A limit per minute whose burst is what ordinary keys need in a moment.
fn limit(ordinary: &ByKey, traffic: &Traffic, suspects: &HashSet<u64>) -> Option<Sparing> {
    let mut seconds = Vec::new();
    let mut minutes = Vec::new();
    for (_, stats) in traffic.census.iter().filter(|(hash, _)| !suspects.contains(hash)) {
        let [second, minute, _] = stats.peaks.most();
        seconds.push(second);
        minutes.push(minute);
    }
    let high = |values: &mut Vec<u32>| {
        values.sort_unstable();
        let place = (values.len() as f64 * (1.0 - SPARED)).ceil() as usize;
        values.get(place.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(1).max(1)
    };
    let (second, minute) = (high(&mut seconds), high(&mut minutes));
    let count = round_up(minute);
    // A quarter of a minute's worth at once, or the busiest second.
    let burst = round_up(second.max(minute.div_ceil(4)).max(2)).min(count.max(2));
    let shape = Quota::per_minute(count).burst(burst).build().ok()?;
    ordinary.sparing(&shape, &[SPARED]).into_iter().next().flatten()
}

fn round_up(number: u32) -> u32 {
    round_numbers().find(|round| *round >= number).unwrap_or(number)
}

fn evidence(
    traffic: &Traffic,
    ordinary: &ByKey,
    sparing: &Sparing,
    all: Tried,
    suspects: &HashSet<u64>,
) -> Vec<String> {
    let mut told = Vec::new();
    let minute = high_minute(traffic, suspects);
    let suspects = suspects.len();
    let keys = counted(traffic.census.keys().saturating_sub(suspects as u64), "ordinary key");
    let about = if traffic.census.is_exact() { "" } else { "about " };
    told.push(format!("99.9 % of {about}{keys} stay at or below {}/min", grouped(minute.into())));
    if let Some(few) = traffic.concentration() {
        let make = if few.keys == 1 { "makes" } else { "make" };
        told.push(format!("{} {make} {} of its requests", counted(few.keys, "key"), percent(few.share)));
    }
    let spared = sparing.tried;
    told.push(format!(
        "{} would have denied {} of {} ordinary keys",
        written(&sparing.quota),
        if spared.keys_denied == 0 {
            "none".to_owned()
        } else {
            format!("{} ({})", grouped(spared.keys_denied), percent(spared.share_of_keys()))
        },
        grouped(spared.keys)
    ));
    if suspects > 0 {
        let were = match suspects {
            1 => "that looks like a bot was left out; with it",
            _ => "that look like bots were left out; with them",
        };
        told.push(format!(
            "{} {were}, the limit would have denied {} of all requests",
            counted(suspects as u64, "key"),
            percent(all.share_of_requests())
        ));
    }
    if !all.exact {
        told.push(format!("tried on {} of a sample of keys", counted(all.requests, "request")));
    }
    if ordinary.keys() < FEW_KEYS {
        told.push(format!(
            "only {}: look at more of the log before you trust this",
            counted(ordinary.keys() as u64, "key")
        ));
    }
    told
}

fn high_minute(traffic: &Traffic, suspects: &HashSet<u64>) -> u32 {
    let ordinary = traffic.census.iter().filter(|(hash, _)| !suspects.contains(hash));
    let mut minutes: Vec<u32> = ordinary.map(|(_, stats)| stats.peaks.most()[1]).collect();
    minutes.sort_unstable();
    let place = (minutes.len() as f64 * 0.999).ceil() as usize;
    minutes.get(place.clamp(1, minutes.len().max(1)) - 1).copied().unwrap_or(0)
}

fn yaml(rules: &[SuggestedRule], found: &Found, seconds: u64) -> String {
    let mut yaml = String::new();
    let requests = counted(found.read.requests, "request");
    let _ = writeln!(
        yaml,
        "# Suggested by `tollkeeper tune` from {requests} in {}.",
        crate::finding::counted_span(seconds)
    );
    let _ = writeln!(
        yaml,
        "# All rules are in shadow mode: run with them, watch what they would deny, then set `mode: enforce`."
    );
    if rules.iter().any(|rule| rule.key == "{user_id}") {
        let _ =
            writeln!(yaml, "\n# Where requests say who signed in: the header in which your proxy passes the user on.");
        let _ = writeln!(yaml, "identify:\n  user_id: header.x-user-id");
    }
    let _ = writeln!(yaml, "\nrules:");
    for rule in rules {
        let _ = writeln!(yaml, "  - name: {}", rule.name);
        for line in &rule.evidence {
            let _ = writeln!(yaml, "    # {line}");
        }
        if !rule.paths.is_empty() {
            let paths: Vec<String> = rule.paths.iter().map(|path| quoted(path)).collect();
            let _ = writeln!(yaml, "    when:\n      method: [POST, PUT, PATCH]\n      path: [{}]", paths.join(", "));
        }
        let _ = writeln!(yaml, "    key: {}", quoted(&rule.key));
        let _ = writeln!(yaml, "    limit: {}", written_limit(&rule.quota).replace(',', "_"));
        if rule.quota.limit() != rule.quota.count() {
            let _ = writeln!(yaml, "    burst: {}", rule.quota.limit());
        }
        let _ = writeln!(yaml, "    mode: shadow");
    }
    yaml
}

/// A text in double quotes: paths come from clients.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}
