//! `tollkeeper replay`: decides recorded requests in virtual time. Each event sets the clock.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tollkeeper::{Limiter, ManualClock, Store, Timestamp};

use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use crate::{settings, wire};

/// Decide recorded requests in virtual time: JSON lines in, JSON lines out
#[derive(Debug, clap::Args)]
#[command(after_help = "Each line in:  {\"at_us\": 3000000, \"attributes\": {\"user_id\": \"42\"}, \"cost\": 1}
Each line out: {\"at_us\": 3000000, \"allowed\": true, \"limiting\": null, \"retry_after_us\": 0, \"rules\": [...]}

Examples:
  tollkeeper replay --config tollkeeper.yaml < events.jsonl > decisions.jsonl
  tollkeeper replay --store redis://127.0.0.1:6379 --input events.jsonl
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
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut loaded = args.config.load_with_rules()?;
    operations::warn(&loaded);
    if let Some(store) = args.store {
        loaded.config.store.url = store;
    }
    let clock = ManualClock::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = runtime.block_on(settings::store(&loaded.config, clock.clone().into()))?;
    let limiter = Limiter::new(loaded.policy, store);
    let (input, size): (Box<dyn Read>, _) = match &args.input {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{}", path.display()))?;
            let size = file.metadata().ok().map(|metadata| metadata.len());
            (Box::new(file), size)
        }
        None => (Box::new(std::io::stdin()), None),
    };
    let replayed = runtime.block_on(replay(BufReader::with_capacity(1 << 16, input), size, &limiter, &clock));
    if let Store::Redis(redis) = limiter.store() {
        runtime.block_on(redis.clear()).context("the keys of the replay could not be removed from the store")?;
    }
    replayed?;
    Ok(Ending::Fine)
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
