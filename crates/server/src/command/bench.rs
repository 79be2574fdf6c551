//! `tollkeeper bench`: load for a running service, and whether its limits held.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tollkeeper::{Clock, Policy, Shorthand, parse_span};

use super::check::parse_attribute;
use super::configuration::ConfigArgs;
use super::ending::Ending;
use crate::load::keys::{Distribution, Keys};
use crate::load::lawful::{self, Judged, Stretch};
use crate::load::tally::Tally;
use crate::load::target::{Protocol, Target};
use crate::load::{self, Plan, Progress};
use tollkeeper_tune::words::{counted, grouped, lasting};

/// Measure a running service under load, and check that its limits hold
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper bench                                                    POST /v1/check on 127.0.0.1:8080 for 10 s
  tollkeeper bench --rate 5000 --duration 30s plan=free               5,000 requests per second, however long answers take
  tollkeeper bench --keys 1 --limit \"10/s burst 20\"                   one client in a bad loop: does it get more than that?
  tollkeeper bench grpc://127.0.0.1:8081 domain=shop --config tollkeeper.yaml
  tollkeeper bench redis://127.0.0.1:6380 --pipeline 16 --distribution zipf
  tollkeeper bench http://127.0.0.1:8000/ping --key header.x-api-key  through the proxy, or any other page

Latency counts from when a request was due: with --rate, a service that falls behind cannot hide it.
Exit status: 0 done, 1 a key got more than --limit or the rules of --config allow, 2 no request was answered.")]
pub(super) struct Args {
    /// The service: http://, grpc:// or redis://
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080", env = "TOLLKEEPER_BENCH_URL")]
    url: String,
    /// Attributes of every request
    #[arg(value_name = "NAME=VALUE")]
    attributes: Vec<String>,
    /// How long to run, for example 30s or 5min
    #[arg(long, value_name = "TIME", default_value = "10s", env = "TOLLKEEPER_DURATION")]
    duration: String,
    /// End after this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), env = "TOLLKEEPER_REQUESTS")]
    requests: Option<u64>,
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=20_000), env = "TOLLKEEPER_CONNECTIONS")]
    connections: u16,
    /// Requests a second (open loop); by default each connection sends its next request after the last answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000), env = "TOLLKEEPER_RATE")]
    rate: Option<u32>,
    /// Commands sent at once on a connection, for redis://
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000), env = "TOLLKEEPER_PIPELINE")]
    pipeline: u16,
    /// The attribute that differs between clients
    #[arg(long, value_name = "NAME", default_value = "user_id", env = "TOLLKEEPER_KEY")]
    key: String,
    /// How many clients there are
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=Keys::MOST), env = "TOLLKEEPER_KEYS")]
    keys: u64,
    /// How requests are distributed over clients
    #[arg(long, value_enum, default_value = "uniform", env = "TOLLKEEPER_DISTRIBUTION")]
    distribution: Distribution,
    /// The limit of each client, for example "10/s burst 20": check that none gets more
    #[arg(long, value_name = "LIMIT", conflicts_with = "config", env = "TOLLKEEPER_LIMIT")]
    limit: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// The token of the service's `decisions.token`, or the password for redis://
    #[arg(long, value_name = "TOKEN", env = "TOLLKEEPER_DECISIONS_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The seed of the keys: the same seed draws the same keys
    #[arg(long, value_name = "N", default_value_t = 1, env = "TOLLKEEPER_SEED")]
    seed: u64,
    /// Print the results as JSON
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let policy = args.policy()?;
    let plan = Arc::new(args.plan()?);
    let progress = Arc::new(Progress::of(&plan));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let begun = Clock::system().now();
    let tally = runtime.block_on(async {
        let shown = crate::background::spawn(show(plan.clone(), progress.clone()));
        let stopped = progress.clone();
        crate::background::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stopped.stop.store(true, Relaxed);
            }
        });
        let tally = load::run(plan.clone(), progress.clone()).await;
        shown.abort();
        let _ = shown.await;
        tally
    });
    let stretch = Stretch { begun, took: tally.took };
    let judged = policy.as_ref().map(|policy| lawful::judge(policy, &plan.target, progress.admitted(), stretch));
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json(&plan, &tally, judged.as_deref()))?;
    } else {
        write!(out, "{}", as_text(&plan, &args, &tally, judged.as_deref()))?;
    }
    if tally.answered() == 0 {
        let problem = tally.problems.keys().next().map_or("there was no time to send one", String::as_str);
        bail!("no request was answered: {problem}");
    }
    let exceeded = judged.iter().flatten().any(|rule| rule.exceeded > 0);
    Ok(if exceeded { Ending::No } else { Ending::Fine })
}

impl Args {
    /// What the service should keep to; `None` if that was not said.
    fn policy(&self) -> anyhow::Result<Option<Policy>> {
        if let Some(limit) = &self.limit {
            let shorthand: Shorthand = limit.parse().map_err(|problem| anyhow!("--limit: {problem}"))?;
            let rule = shorthand.keyed_by(&self.key).map_err(|_| {
                anyhow!("--limit: each client has this limit, so leave out `by`; --key names the attribute of a client")
            });
            let rule = rule?.rule("limit");
            return Ok(Some(Policy::new([rule]).map_err(|problem| anyhow!("--limit: {problem}"))?));
        }
        match self.config.config {
            Some(_) => Ok(Some(self.config.load_with_rules()?.policy)),
            None => Ok(None),
        }
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let attributes =
            self.attributes.iter().map(|text| parse_attribute(text)).collect::<anyhow::Result<Vec<_>>>()?;
        if attributes.iter().any(|(name, _)| *name == self.key) {
            bail!("attribute `{}` differs from client to client; leave it out, or name another with --key", self.key);
        }
        let target = Target::parse(&self.url, &self.key, &attributes, self.token.clone());
        let target = target.map_err(|problem| anyhow!("URL {:?} {problem}", without_user(&self.url)))?;
        if self.pipeline > 1 && target.protocol != Protocol::Resp {
            bail!("--pipeline: only redis:// has pipelines; use more --connections");
        }
        let duration = parse_span(&self.duration).map_err(|problem| anyhow!("--duration: {problem}"))?;
        Ok(Plan {
            target,
            connections: usize::from(self.connections),
            pipeline: usize::from(self.pipeline),
            duration: duration.as_duration(),
            requests: self.requests,
            rate: self.rate.map(f64::from),
            keys: Keys::new(self.keys, self.distribution),
            seed: self.seed,
        })
    }
}

/// A password does not belong in an error.
fn without_user(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://{host}"),
        None => url.into(),
    }
}

/// A bar in a terminal, until it is aborted.
async fn show(plan: Arc<Plan>, progress: Arc<Progress>) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let bar = ProgressBar::new(plan.duration.as_millis() as u64);
    let style = ProgressStyle::with_template("{bar:30} {elapsed} of {prefix}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(lasting(plan.duration));
    // Removes the bar also when the task is aborted.
    let bar = Cleared(bar);
    let (begun, mut before) = (Instant::now(), (Instant::now(), 0));
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let (now, answered) = (Instant::now(), progress.answered.load(Relaxed));
        let rate = (answered - before.1) as f64 / now.duration_since(before.0).as_secs_f64();
        before = (now, answered);
        let allowed = share(progress.allowed.load(Relaxed), answered);
        let failed = match progress.failed.load(Relaxed) {
            0 => String::new(),
            failed => format!(", {} failed", grouped(failed)),
        };
        bar.0.set_position(begun.elapsed().as_millis() as u64);
        bar.0.set_message(format!("{}/s, {allowed} allowed{failed}", grouped(rate as u64)));
    }
}

struct Cleared(ProgressBar);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// To three digits; more is noise.
fn rounded(time: Duration) -> Duration {
    let micros = time.as_micros() as u64;
    let unit = 10_u64.pow(micros.checked_ilog10().unwrap_or(0).saturating_sub(2));
    Duration::from_micros((micros + unit / 2) / unit * unit)
}

fn rate(tally: &Tally) -> f64 {
    tally.answered() as f64 / tally.took.as_secs_f64().max(1e-9)
}

fn as_text(plan: &Plan, args: &Args, tally: &Tally, judged: Option<&[Judged]>) -> String {
    let pace = match args.rate {
        Some(rate) => format!("{} requests a second", grouped(u64::from(rate))),
        None => "as fast as answers come".into(),
    };
    let clients = match args.distribution {
        Distribution::Uniform => counted(args.keys, "client"),
        Distribution::Zipf => format!("{}, the first the busiest (Zipf)", counted(args.keys, "client")),
        Distribution::New => "a new client with every request".into(),
    };
    let mut text = format!(
        "{}\n{} for {}, {pace}, {clients}\n\n",
        plan.target,
        counted(plan.connections as u64, "connection"),
        lasting(rounded(tally.took))
    );
    let mut line = |name: &str, rest: String| text.push_str(&format!("{name:<10} {rest}\n"));
    line("answered", format!("{:>11}  {}/s", grouped(tally.answered()), grouped(rate(tally) as u64)));
    for (name, count) in [("allowed", tally.allowed), ("denied", tally.denied), ("overloaded", tally.shed)] {
        if name != "overloaded" || count > 0 {
            line(name, format!("{:>11}  {}", grouped(count), share(count, tally.answered())));
        }
    }
    for (problem, count) in &tally.problems {
        line("failed", format!("{:>11}  {problem}", grouped(*count)));
    }
    if tally.answered() > 0 {
        let quantile = |share| lasting(rounded(tally.quantile(share)));
        let (half, most, nearly) = (quantile(0.5), quantile(0.9), quantile(0.99));
        let (all, longest) = (quantile(0.999), lasting(rounded(tally.longest())));
        line("latency", format!("p50 {half}, p90 {most}, p99 {nearly}, p99.9 {all}, longest {longest}"));
    }
    match judged {
        None => line("limits", "not checked; say what they are with --limit or --config".into()),
        Some([]) => line("limits", "not checked: no request that was allowed falls under a rule with a rate".into()),
        Some(rules) => rules.iter().for_each(|rule| line("limits", verdict(rule))),
    }
    text
}

fn verdict(judged: &Judged) -> String {
    let (name, fullest) = (judged.rule.name(), &judged.fullest);
    let spent = format!("{} of at most {}", grouped(fullest.admitted), grouped(fullest.lawful));
    match (judged.exceeded, judged.keys) {
        (0, 1) => format!("{name}: held; {:?} got {spent}", fullest.key),
        (0, keys) => format!("{name}: held for {}; {:?} got the most, {spent}", counted(keys, "key"), fullest.key),
        (over, keys) => {
            format!("{name}: EXCEEDED by {} of {}; {:?} got {spent}", over, counted(keys, "key"), fullest.key)
        }
    }
}

fn as_json(plan: &Plan, tally: &Tally, judged: Option<&[Judged]>) -> serde_json::Value {
    let ms = |time: Duration| time.as_micros() as f64 / 1_000.0;
    let rule = |each: &Judged| {
        json!({
            "rule": each.rule.name(), "keys": each.keys, "exceeded": each.exceeded,
            "fullest": {"key": each.fullest.key, "admitted": each.fullest.admitted, "at_most": each.fullest.lawful},
        })
    };
    json!({
        "target": plan.target.to_string(),
        "connections": plan.connections,
        "rate": plan.rate,
        "seconds": tally.took.as_secs_f64(),
        "answered": tally.answered(),
        "per_second": rate(tally),
        "allowed": tally.allowed,
        "denied": tally.denied,
        "overloaded": tally.shed,
        "failed": tally.problems,
        "latency_ms": {
            "mean": ms(tally.mean()), "p50": ms(tally.quantile(0.5)), "p90": ms(tally.quantile(0.9)),
            "p99": ms(tally.quantile(0.99)), "p99_9": ms(tally.quantile(0.999)), "max": ms(tally.longest()),
        },
        "limits": judged.map(|rules| rules.iter().map(rule).collect::<Vec<_>>()),
    })
}
