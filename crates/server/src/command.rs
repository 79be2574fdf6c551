//! The command line: one file per verb. Exit 0 fine, 1 the answer is no, 2 usage or trouble.

mod actions;
mod alerts;
mod check;
mod client;
mod draw;
mod except;
mod greeting;
mod health;
mod import;
mod operations;
mod proxy;
mod reload;
mod replay;
mod rules;
mod schema;
mod serve;
mod signals;
mod source;
mod table;
mod tls;
mod top;
mod validate;
mod violations;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollkeeper::{HeaderStyle, Store};

use operations::warn;

use crate::config::{Config, ConfigError};
use crate::settings::{self, Loaded};

#[derive(Debug, Parser)]
#[command(
    name = "tollkeeper",
    version,
    about = "An exact rate limiter: one process, one command, the right answers.",
    after_help = "Examples:
  tollkeeper serve                                     run on the built-in default rules
  tollkeeper serve --config tollkeeper.yaml              run on your own
  tollkeeper proxy --upstream http://127.0.0.1:3000 --limit 100/min
  tollkeeper validate tollkeeper.yaml                    check a file before it goes live
  tollkeeper check --config tollkeeper.yaml user_id=42 plan=free
  tollkeeper replay --config tollkeeper.yaml < events.jsonl > decisions.jsonl
  tollkeeper rules diff tollkeeper.yaml                  compare a file with the rules in Postgres
  tollkeeper violations --since 1h                     who was denied by the service that runs
  tollkeeper block --rule per-user --key 42 --for 1h   a key of a running service; see also allow, grant, lift, reset
  tollkeeper top                                       its traffic in this terminal, live
  tollkeeper actions --key 42                          who did what to it

Exit status: 0 fine, 1 the answer is no (denied, invalid), 2 usage or trouble."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the service
    Serve(Box<serve::Args>),
    /// Run a reverse proxy that limits what passes it
    Proxy(Box<proxy::Args>),
    /// Decide one request and explain the answer
    Check(check::Args),
    /// Check a configuration file
    Validate(validate::Args),
    /// Decide recorded requests in virtual time: JSON lines in, JSON lines out
    Replay(replay::Args),
    /// See and change the rules in Postgres
    Rules(rules::Args),
    /// Show who was denied, by a running service
    Violations(violations::Args),
    /// Show who blocked, allowed, granted, lifted or reset a key
    Actions(actions::Args),
    /// Try where alerts go
    Alerts(alerts::Args),
    /// Ask a running service whether it is well
    Health(health::Args),
    /// Watch a running service in the terminal: traffic, findings, hot keys, the store
    Top(top::Args),
    /// Turn the configuration of another rate limiter into rules
    Import(import::Args),
    /// Print the JSON Schema of the configuration file, for editors
    Schema(schema::Args),
    /// Deny every request of a key for a while
    Block(except::BlockArgs),
    /// Let every request of a key pass a rule, uncharged
    Allow(except::AllowArgs),
    /// Give a key a limit of its own for a while
    Grant(except::GrantArgs),
    /// End the exception of a key
    Lift(except::LiftArgs),
    /// Show the exceptions in force
    Exceptions(except::ListArgs),
    /// Forget what a key has used
    Reset(except::ResetArgs),
    /// Draw how each algorithm treats the same traffic, from real decisions, as SVG
    Draw(draw::Args),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Fine,
    /// The answer is no: denied, or invalid.
    No,
}

/// Runs what the command line of this process says, until it is done.
pub fn run() -> ExitCode {
    let ended = match Cli::parse().verb {
        Verb::Serve(args) => serve::run(*args),
        Verb::Proxy(args) => proxy::run(*args),
        Verb::Check(args) => check::run(args),
        Verb::Validate(args) => validate::run(args),
        Verb::Replay(args) => replay::run(args),
        Verb::Rules(args) => rules::run(args),
        Verb::Violations(args) => violations::run(args),
        Verb::Actions(args) => actions::run(args),
        Verb::Alerts(args) => alerts::run(args),
        Verb::Health(args) => health::run(args),
        Verb::Top(args) => top::run(args),
        Verb::Import(args) => import::run(args),
        Verb::Schema(args) => schema::run(args),
        Verb::Block(args) => except::block(args),
        Verb::Allow(args) => except::allow(args),
        Verb::Grant(args) => except::grant(args),
        Verb::Lift(args) => except::lift(args),
        Verb::Exceptions(args) => except::list(args),
        Verb::Reset(args) => except::reset(args),
        Verb::Draw(args) => draw::run(args),
    };
    match ended {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::No) => ExitCode::from(1),
        // Whoever read our output has seen enough: `tollkeeper replay ... | head` is no trouble.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            operations::say_error(&error);
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// `--config FILE`, or the built-in default.
#[derive(Debug, clap::Args)]
struct ConfigArgs {
    /// The configuration file (YAML); the built-in default without one
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_CONFIG")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    /// With the rules of now, wherever they are.
    fn load_with_rules(&self) -> anyhow::Result<Loaded> {
        let mut loaded = self.load()?;
        source::read_once(&mut loaded)?;
        Ok(loaded)
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        match &self.config {
            Some(path) => settings::load(path),
            None => settings::load_embedded(),
        }
    }
}

fn header_style(text: &str) -> Result<HeaderStyle, String> {
    let names: Vec<&str> = HeaderStyle::ALL.iter().map(|(_, name)| *name).collect();
    match HeaderStyle::ALL.iter().find(|(_, name)| *name == text) {
        Some((style, _)) => Ok(*style),
        None => Err(format!("there is no style `{text}`{}", crate::explain::suggestion(text, &names))),
    }
}

/// The store that a configuration names, with a warning where its server may lose what it is told.
async fn open_store(config: &Config) -> anyhow::Result<Store> {
    let store = settings::store(config, tollkeeper::Clock::system()).await?;
    if let Store::Redis(redis) = &store
        && let Some(warning) = redis.server().warning()
    {
        tracing::warn!("store.url: {warning}");
    }
    Ok(store)
}
