//! `tollkeeper replay`: decides recorded requests in virtual time. Each event sets the clock.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::Runtime;
use tollkeeper::{Charge, Limiter, ManualClock, Rule, Store, Timestamp};
use tollkeeper_logs::Format;
use tollkeeper_tune::words::counted;
use tollkeeper_tune::{Log, Naming, Options, Paint, Progress, Report, Source, each_request, summary};

use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use crate::privacy::Privacy;
use crate::settings::{self, Loaded};
use crate::wire;

/// Decide recorded requests in virtual time: events or access logs in, decisions or a summary out
#[derive(Debug, clap::Args)]
#[command(after_help = "Each line in:  {\"at_us\": 3000000, \"attributes\": {\"user_id\": \"42\"}, \"cost\": 1}
Each line out: {\"at_us\": 3000000, \"allowed\": true, \"limiting\": null, \"retry_after_us\": 0, \"rules\": [...]}
Access logs are read too, in the formats of `tollkeeper tune`; their requests are decided in order of time.

Examples:
  tollkeeper replay --config tollkeeper.yaml < events.jsonl > decisions.jsonl
  tollkeeper replay --store redis://127.0.0.1:6379 --input events.jsonl
  tollkeeper replay --config tollkeeper.yaml --input access.log --summary
  tollkeeper replay --input events.jsonl | jq -c 'select(.allowed | not)'")]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Where state lives, instead of the store in the file: `memory:`, `redis://`, `redis+cluster://` or `redis+sentinel://`
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_STORE")]
    store: Option<String>,
    /// Read events from a file rather than standard input
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_INPUT")]
    input: Option<PathBuf>,
    /// The format of an access log: a name such as `combined`, or as written in the configuration of nginx or Apache
    #[arg(long, value_name = "FORMAT", env = "TOLLKEEPER_FORMAT")]
    format: Option<String>,
    /// Print a summary instead of each decision: what every rule denied, and whom
    #[arg(long, env = "TOLLKEEPER_SUMMARY", value_parser = clap::builder::FalseyValueParser::new())]
    summary: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut loaded = args.config.load_with_rules()?;
    operations::warn(&loaded);
    if let Some(store) = args.store {
        loaded.config.store.url = store;
    }
    if args.summary {
        if !loaded.config.store.url.starts_with("memory:") {
            bail!("--summary decides in memory: leave out --store, or give --store memory:");
        }
        return summarise(logs(&args.input, args.format.as_deref())?, loaded);
    }
    let clock = ManualClock::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = runtime.block_on(settings::store(&loaded.config, clock.clone().into()))?;
    let limiter = Limiter::new(loaded.policy, store);
    if args.format.is_some() || is_access_log(&args.input)? {
        let logs = logs(&args.input, args.format.as_deref())?;
        let naming = Naming { ipv6_prefix: loaded.config.ipv6_prefix, identify: loaded.config.identify.clone() };
        let replayed = replay_logs(logs, &naming, &limiter, &clock, &runtime);
        return ended(&runtime, &limiter, replayed);
    }
    let (input, size): (Box<dyn Read>, _) = match &args.input {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{}", path.display()))?;
            let size = file.metadata().ok().map(|metadata| metadata.len());
            (Box::new(file), size)
        }
        None => (Box::new(std::io::stdin()), None),
    };
    let replayed = runtime.block_on(replay(BufReader::with_capacity(1 << 16, input), size, &limiter, &clock));
    ended(&runtime, &limiter, replayed)
}

fn ended(runtime: &Runtime, limiter: &Limiter, replayed: anyhow::Result<()>) -> anyhow::Result<Ending> {
    if let Store::Redis(redis) = limiter.store() {
        runtime.block_on(redis.clear()).context("the keys of the replay could not be removed from the store")?;
    }
    replayed?;
    Ok(Ending::Fine)
}

fn logs(input: &Option<PathBuf>, format: Option<&str>) -> anyhow::Result<Vec<Log>> {
    let name = input.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
    let format = format.map(Format::named).transpose().context("--format")?;
    Ok(Log::open(Source::named(&[name])?, format.as_ref(), 0)?)
}

/// Whether the first line is not an event. Nothing of the input is consumed.
fn is_access_log(input: &Option<PathBuf>) -> anyhow::Result<bool> {
    let mut start = Vec::new();
    match input {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{}", path.display()))?;
            file.take(4_096).read_to_end(&mut start)?;
        }
        // Standard input has one buffer, whoever reads it.
        None => start.extend_from_slice(std::io::stdin().lock().fill_buf()?),
    }
    let text = String::from_utf8_lossy(&start);
    let lines: Vec<&str> =
        text.trim_start_matches('\u{feff}').lines().filter(|line| !line.trim().is_empty()).take(1).collect();
    // What is neither is an event with a mistake, which is reported as such.
    let is_event = lines
        .first()
        .is_none_or(|line| line.trim_start().starts_with('{') && !line.contains("\"time") && !line.contains("\"ts\""));
    Ok(!is_event
        && (start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5]) || Format::detect(&lines).is_some()))
}

/// Rules on a log, with the report of `tollkeeper tune`.
fn summarise(logs: Vec<Log>, loaded: Loaded) -> anyhow::Result<Ending> {
    let privacy = Privacy::new(&loaded.config.identify);
    let shown = |rule: &Rule, variant: u16, key: &str| privacy.shown_key(rule, variant, key).into_owned();
    let options = Options {
        naming: Naming { ipv6_prefix: loaded.config.ipv6_prefix, identify: loaded.config.identify },
        policy: Some(loaded.policy),
        compared: None,
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        max_keys: tollkeeper_tune::MAX_KEYS,
    };
    let report = Report::of(logs, options, &Progress::default(), &shown);
    let mut out = std::io::stdout().lock();
    let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    write!(out, "{}", summary(&report, if colours { Paint::Colours } else { Paint::Plain }))?;
    Ok(Ending::Fine)
}

/// Each request of access logs, in order of time.
fn replay_logs(
    logs: Vec<Log>,
    naming: &Naming,
    limiter: &Limiter,
    clock: &ManualClock,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let policy = limiter.policy();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed = None;
    let read = each_request(
        logs,
        naming,
        workers,
        &Progress::default(),
        |request| policy.charges(request).map_err(|error| error.to_string()),
        |at_us, charges| {
            if failed.is_none() {
                failed = decide_charges(at_us, charges, limiter, clock, runtime, &mut output).err();
            }
        },
    );
    output.flush()?;
    if let Some(error) = failed {
        return Err(error);
    }
    for bad in &read.first_unreadable {
        writeln!(std::io::stderr(), "warning: {}:{}: {}", bad.source, bad.line, bad.reason)?;
    }
    if read.unreadable > 0 {
        writeln!(std::io::stderr(), "warning: {} could not be read", counted(read.unreadable, "line"))?;
    }
    Ok(())
}

fn decide_charges(
    at_us: u64,
    charges: Vec<Charge>,
    limiter: &Limiter,
    clock: &ManualClock,
    runtime: &Runtime,
    output: &mut impl Write,
) -> anyhow::Result<()> {
    clock.set(Timestamp::from_micros(at_us));
    let verdict = runtime.block_on(limiter.check_charges(charges))?;
    if verdict.is_degraded() {
        bail!("the store did not answer");
    }
    writeln!(output, "{}", wire::replay_line(at_us, &verdict))?;
    Ok(())
}

async fn replay(
    mut input: BufReader<Box<dyn Read>>,
    size: Option<u64>,
    limiter: &Limiter,
    clock: &ManualClock,
) -> anyhow::Result<()> {
    let mut output = BufWriter::new(std::io::stdout().lock());
    let progress = progress(size);
    let mut line = String::new();
    for number in 1u64.. {
        line.clear();
        let read = input.read_line(&mut line).with_context(|| format!("line {number}"))?;
        if read == 0 {
            break;
        }
        progress.inc(if size.is_some() { read as u64 } else { 1 });
        if number == 1 && line.starts_with('\u{feff}') {
            line.remove(0);
        }
        if line.trim().is_empty() {
            continue;
        }
        let decided = decide(&line, limiter, clock).await;
        match decided.with_context(|| format!("line {number}")) {
            Ok(decision) => {
                writeln!(output, "{decision}")?;
                // A caller that sends one event at a time waits for its answer.
                if input.buffer().is_empty() {
                    output.flush()?;
                }
            }
            Err(error) => {
                // Decisions before the invalid line are still printed.
                output.flush()?;
                progress.finish_and_clear();
                bail!(error);
            }
        }
    }
    output.flush()?;
    progress.finish_and_clear();
    Ok(())
}

async fn decide(line: &str, limiter: &Limiter, clock: &ManualClock) -> anyhow::Result<String> {
    let event = wire::parse_event(line).map_err(anyhow::Error::msg)?;
    clock.set(Timestamp::from_micros(event.at_us));
    let verdict = limiter.check(&event.descriptor).await?;
    if verdict.is_degraded() {
        bail!("the store did not answer");
    }
    Ok(wire::replay_line(event.at_us, &verdict))
}

/// Shown in a terminal only, not when output or errors go to a file or a pipe.
fn progress(size: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() || std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:40} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {human_pos} events, {per_sec}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
