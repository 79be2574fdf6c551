//! `tollkeeper top`: what the dashboard shows, in a terminal, over the same API.

mod draw;
mod line;
mod numbers;
mod report;
mod screen;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;

use super::client::ServiceArgs;
use super::ending::Ending;
use crate::background::block_on;
use report::Report;

/// Watch a running service in the terminal: traffic, findings, hot keys, the store
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper top                                           the service on this machine
  tollkeeper top --server http://10.0.0.7:8080             another one; needs TOLLKEEPER_ADMIN_TOKEN
  tollkeeper top --once                                    plain text, once
  tollkeeper top --json | jq .totals                       the JSON of GET /v1/insight

Keys: up and down select a rule, tab switches what is shown of it, q quits. NO_COLOR is respected.")]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// The refresh interval: between 200ms and 1h
    #[arg(long, value_name = "TIME", default_value = "1s", env = "TOLLKEEPER_INTERVAL", value_parser = interval)]
    interval: Duration,
    /// Print plain text once; the default if the output is not a terminal
    #[arg(long, env = "TOLLKEEPER_ONCE", value_parser = clap::builder::FalseyValueParser::new())]
    once: bool,
    /// Print the JSON of the HTTP API once
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = tollkeeper_core::parse_span(text).map_err(|error| error.to_string())?;
    let interval = Duration::from_micros(span.as_micros());
    let allowed = Duration::from_millis(200)..=Duration::from_secs(3_600);
    if allowed.contains(&interval) { Ok(interval) } else { Err("use a time between 200ms and 1h".into()) }
}

pub fn run(args: Args) -> anyhow::Result<Ending> {
    if !args.once && !args.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        screen::run(args.service, args.interval)?;
        return Ok(Ending::Fine);
    }
    let answer = block_on(args.service.get("/v1/insight", &[]))??;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{answer}")?;
        return Ok(Ending::Fine);
    }
    let report: Report =
        serde_json::from_value(answer).context("the service's answer cannot be parsed; is it a different version?")?;
    for line in draw::everything(&report) {
        writeln!(out, "{}", line.plain().trim_end())?;
    }
    Ok(Ending::Fine)
}
