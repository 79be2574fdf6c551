//! `tollkeeper replay`: decides recorded requests in virtual time. Each event sets the clock.

mod decide;
mod events;
mod in_order;

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::{Context, bail};
use tokio::runtime::Runtime;
use tollkeeper::{Limiter, ManualClock, Rule, Store};
use tollkeeper_logs::Format;
use tollkeeper_tune::words::counted;
use tollkeeper_tune::{Log, Naming, Options, Paint, Progress, Report, Source, each_request, summary};

use self::decide::{Decided, Event, decide, write_lines};
use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use super::tune::offset;
use crate::privacy::Privacy;
use crate::settings::{self, Loaded};

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
    /// The UTC offset of times without a time zone, such as +02:00 (HAProxy)
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", value_parser = offset, allow_hyphen_values = true, env = "TOLLKEEPER_UTC_OFFSET")]
    utc_offset: i64,
    /// Print a summary instead of each decision: what every rule denied, and whom
    #[arg(long, env = "TOLLKEEPER_SUMMARY", value_parser = clap::builder::FalseyValueParser::new())]
    summary: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut loaded = args.config.load_with_rules()?;
    operations::warn(&loaded);
    if let Some(store) = &args.store {
        loaded.config.store.url.clone_from(store);
    }
    let name = args.input.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
    let mut sources = Source::named(&[name])?;
    let format = args.format.as_deref().map(Format::named).transpose().context("--format")?;
    if args.summary {
        if !loaded.config.store.url.starts_with("memory:") {
            bail!("--summary decides in memory: leave out --store, or give --store memory:");
        }
        return summarise(Log::open(sources, format.as_ref(), args.utc_offset)?, loaded);
    }
    let clock = ManualClock::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = runtime.block_on(settings::store(&loaded.config, clock.clone().into()))?;
    let limiter = Arc::new(Limiter::new(loaded.policy, store));
    let logs = match sources.pop() {
        // A pattern may match several.
        Some(source) if sources.is_empty() => {
            let mut input = open(&source).with_context(|| source.name())?;
            let start = input.fill_buf().with_context(|| source.name())?;
            if format.is_none() && !is_access_log(start) {
                let replayed = events::replay(input, source.size(), &limiter, clock, &runtime);
                return ended(&runtime, &limiter, replayed);
            }
            vec![Log::opened(source, input, format.as_ref(), args.utc_offset)?]
        }
        last => Log::open(sources.into_iter().chain(last).collect(), format.as_ref(), args.utc_offset)?,
    };
    let naming = Naming { ipv6_prefix: loaded.config.ipv6_prefix, identify: loaded.config.identify.clone() };
    let replayed = replay_logs(logs, &naming, &limiter, &clock, &runtime);
    ended(&runtime, &limiter, replayed)
}

fn open(source: &Source) -> std::io::Result<Box<dyn BufRead + Send>> {
    Ok(match source {
        Source::File { path, .. } => Box::new(BufReader::new(File::open(path)?)),
        _ => Box::new(BufReader::new(std::io::stdin())),
    })
}

fn ended(runtime: &Runtime, limiter: &Limiter, replayed: anyhow::Result<()>) -> anyhow::Result<Ending> {
    if let Store::Redis(redis) = limiter.store() {
        runtime.block_on(redis.clear()).context("the keys of the replay could not be removed from the store")?;
    }
    replayed?;
    Ok(Ending::Fine)
}

/// Whether the first line is not an event.
fn is_access_log(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let lines: Vec<&str> =
        text.trim_start_matches('\u{feff}').lines().filter(|line| !line.trim().is_empty()).take(1).collect();
    match lines.first() {
        None => false,
        Some(line) if !line.trim_start().starts_with('{') => true,
        Some(line) if line.contains("\"at_us\"") || line.contains("\"attributes\"") => false,
        // What is neither is an event with a mistake, which is reported as such.
        Some(_) => Format::detect(&lines).is_some(),
    }
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
    let policy = limiter.policy();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let (batches, decided) = sync_channel(AHEAD);
    let writer = thread::spawn(move || write_batches(&decided));
    let (mut failed, mut is_read) = (None, true);
    let mut decide_batch = |events: Vec<Event>| {
        if failed.is_none() && is_read {
            let (batch, undecided) = runtime.block_on(decide(events, limiter, clock));
            // The writer has gone if nobody reads the output any more; it says so.
            is_read = batches.send(batch).is_ok();
            failed = undecided;
        }
    };
    let mut events = Vec::with_capacity(TOGETHER);
    let read = each_request(
        logs,
        naming,
        workers,
        &Progress::default(),
        |request| policy.charges(request).map_err(|error| error.to_string()),
        |at_us, charges| {
            events.push(Event { line: None, at_us, charges });
            if events.len() == TOGETHER {
                decide_batch(std::mem::replace(&mut events, Vec::with_capacity(TOGETHER)));
            }
        },
    );
    decide_batch(events);
    drop(batches);
    let written = writer.join().unwrap_or_else(|_| bail!("the output could not be written"));
    failed.map_or(written, Err)?;
    for bad in &read.first_unreadable {
        writeln!(std::io::stderr(), "warning: {}:{}: {}", bad.source, bad.line, bad.reason)?;
    }
    if read.unreadable > 0 {
        writeln!(std::io::stderr(), "warning: {} could not be read", counted(read.unreadable, "line"))?;
    }
    for broken in &read.broken {
        writeln!(std::io::stderr(), "warning: {broken}")?;
    }
    Ok(())
}

/// Batches that may wait for the writer.
const AHEAD: usize = 4;
/// Requests of a log that are decided before they are handed on.
const TOGETHER: usize = 1_024;

fn write_batches(decided: &Receiver<Vec<Decided>>) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    let mut lines = Vec::new();
    for batch in decided {
        write_lines(&mut lines, &batch);
        output.write_all(&lines)?;
        output.flush()?;
        lines.clear();
    }
    Ok(())
}
