//! `tollkeeper check`: one decision, explained.

use std::io::Write as _;

use anyhow::bail;
use tollkeeper::{Clock, Decision, Descriptor, Enforcement, Limiter, Policy, Request, Row, Rule, Span, Verdict};

use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use crate::seal::Seal;
use crate::{settings, wire};
use tollkeeper_tune::words::{grouped, lasting};

/// Decide one request and explain the answer
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper check user_id=42 plan=free
  tollkeeper check --config tollkeeper.yaml --cost 10 path=/reports/7 method=POST ip=203.0.113.9
  tollkeeper check --times 60 user_id=42 plan=free        the last of 60 requests at once

Every bucket starts full: this shows what the rules say, not what a client has used. Exit status 1: denied.")]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The cost of the request; 0 checks without charging
    #[arg(long, default_value_t = 1, env = "TOLLKEEPER_COST")]
    cost: u32,
    /// Decide this many such requests at one moment and explain the last
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000), env = "TOLLKEEPER_TIMES")]
    times: u32,
    /// Print the JSON of the HTTP API
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
    /// Attributes of the request
    #[arg(value_name = "NAME=VALUE")]
    attributes: Vec<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let loaded = args.config.load_with_rules()?;
    operations::warn(&loaded);
    let attributes = args.attributes.iter().map(|text| parse_attribute(text)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some((name, _)) = attributes
        .iter()
        .enumerate()
        .find_map(|(at, (name, _))| attributes[..at].iter().find(|(other, _)| other == name))
    {
        bail!("attribute `{name}` is given twice; keep one");
    }
    let request = Descriptor::new(attributes).with_cost(args.cost);
    // The clock stands still, so that repeated requests do not see refills.
    let clock = tollkeeper::ManualClock::at(Clock::system().now());
    let limiter = Limiter::new(loaded.policy, settings::memory_store(&loaded.config, clock.into())?);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut verdict = runtime.block_on(limiter.check(&request))?;
    for _ in 1..args.times {
        verdict = runtime.block_on(limiter.check(&request))?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&wire::CheckAnswer::new(&verdict, None, &Seal::random()?))?)?;
    } else {
        write!(out, "{}", explanation(&verdict, &limiter.policy(), &request))?;
    }
    Ok(if verdict.is_allowed() { Ending::Fine } else { Ending::No })
}

pub(super) fn parse_attribute(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => bail!("{text:?} is not an attribute; write NAME=VALUE, for example user_id=42"),
    }
}

fn explanation(verdict: &Verdict, policy: &Policy, request: &Descriptor) -> String {
    let mut text = headline(verdict, policy);
    for rule in policy.rules() {
        let row = verdict.rows().iter().find(|row| row.charge.rule.name() == rule.name());
        let line = match row {
            Some(row) => says(row),
            None => format!("  -  {:<16} does not apply: {}", rule.name(), why_not(rule, request)),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn headline(verdict: &Verdict, policy: &Policy) -> String {
    match verdict.limiting() {
        None if verdict.rows().is_empty() => "allowed: no rule applies\n".to_string(),
        None => match (verdict.rows().len(), policy.rules().len()) {
            (1, 1) => "allowed: the only rule applies and allows it\n".to_string(),
            (1, all) => format!("allowed: 1 of {all} rules applies and allows it\n"),
            (some, all) => format!("allowed: {some} of {all} rules apply, and all of them allow it\n"),
        },
        Some(row) => {
            let wait = match verdict.retry_after() {
                Some(wait) => format!("passes in {}", lasting(wait.as_duration())),
                None if row.is_blocked() => "blocked by an exception without an end".to_string(),
                None => {
                    let [cost, limit] = [row.charge.cost, row.decision.limit].map(|number| grouped(number.into()));
                    format!("can never pass: cost {cost} is above the limit of {limit}")
                }
            };
            format!("denied by {} for key {:?}: {wait}\n", row.charge.rule.name(), row.charge.key.value)
        }
    }
}

fn says(row: &Row) -> String {
    let rule = &row.charge.rule;
    let Decision { limit, remaining, reset_after, .. } = row.decision;
    let mark = if row.decision.is_allowed() { "ok" } else { "NO" };
    let shadow = match rule.mode() {
        Enforcement::Shadow => " (shadow: never denies)",
        Enforcement::Annotate => " (annotate: passes, marked for the upstream)",
        Enforcement::Quota => " (quota: denies together with the others)",
        _ => "",
    };
    if row.is_unasked() {
        let because = "not evaluated, because an exception denies the request";
        return format!("  -  {:<16} key {:?}: {because}", rule.name(), row.charge.key.value);
    }
    let excepted = row.charge.exception().map(|exception| format!(" ({} by an exception)", exception.kind.name()));
    let delay = match row.decision.delay() {
        Span::ZERO => String::new(),
        delay => format!(", its turn comes in {}", lasting(delay.as_duration())),
    };
    format!(
        "  {mark} {:<16} key {:?}, cost {}: {} of {} left, full again in {}{delay}{shadow}{}  [{}]",
        rule.name(),
        row.charge.key.value,
        grouped(row.charge.cost.into()),
        grouped(remaining.into()),
        grouped(limit.into()),
        lasting(reset_after.as_duration()),
        excepted.unwrap_or_default(),
        row.charge.quota(),
    )
}

fn why_not(rule: &Rule, request: &Descriptor) -> String {
    if !rule.is_active() {
        return "it is turned off (active: false)".to_string();
    }
    for condition in rule.when() {
        match request.attribute(condition.attribute()) {
            _ if condition.holds(request) => {}
            None => return format!("the request has no `{}`", condition.attribute()),
            Some(value) => return format!("`{}` is {value:?}", condition.attribute()),
        }
    }
    match rule.key_of(request) {
        Err(names) => format!("its key needs `{}`", names.join("` or `")),
        Ok(_) => "it was not evaluated".to_string(),
    }
}
