//! The command line: one file per verb, here or in `tollkeeper-cli`. Exit status: 0 success, 1 negative result, 2 usage
//! or other errors.

mod access;
mod alerts;
mod bench;
mod check;
mod configuration;
mod greeting;
mod import;
mod listening;
mod open_files;
mod operations;
mod proxy;
mod reload;
mod replay;
mod rules;
mod serve;
mod simulate;
mod source;
mod store;
mod tls;
mod tune;
mod unused_memory;
mod validate;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use tollkeeper_cli::command::{
    actions, completions, draw, ending, except, health, man, schema, signals, top, violations, visible,
};

use ending::Ending;

#[derive(Debug, Parser)]
#[command(
    name = "tollkeeper",
    version,
    about = "An exact rate limiter: a service, a reverse proxy, and tools for both.",
    after_help = "Examples:
  tollkeeper serve                                     run with the built-in example rules
  tollkeeper serve --config tollkeeper.yaml            run with your own rules
  tollkeeper proxy --upstream http://127.0.0.1:3000 --limit 100/min
  tollkeeper validate tollkeeper.yaml                  check a file before it goes live
  tollkeeper check --config tollkeeper.yaml user_id=42 plan=free
  tollkeeper replay --config tollkeeper.yaml < events.jsonl > decisions.jsonl
  tollkeeper tune access.log                           which limits to set, from an access log
  tollkeeper simulate scenario.yaml -c tollkeeper.yaml simulated clients against rules
  tollkeeper rules diff tollkeeper.yaml                compare a file with the rules in Postgres

With a running service:
  tollkeeper top                                       watch its traffic
  tollkeeper bench --keys 1 --limit \"10/s burst 20\"    load it, and check that the limit holds
  tollkeeper violations --since 1h                     who was denied
  tollkeeper block --rule per-user --key 42 --for 1h   see also allow, grant, lift and reset
  tollkeeper actions --key 42                          who blocked or allowed this key

Exit status: 0 success, 1 negative result (denied, invalid), 2 usage error or failure."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the service
    Serve(Box<serve::Args>),
    /// Run a reverse proxy that rate limits requests
    Proxy(Box<proxy::Args>),
    /// Decide one request and explain the answer
    Check(check::Args),
    /// Check a configuration file
    Validate(validate::Args),
    /// Decide recorded requests in virtual time: events or access logs in, decisions or a summary out
    Replay(replay::Args),
    /// Suggest limits from access logs, and show what rules would have done
    Tune(Box<tune::Args>),
    /// Simulate clients against rules: steady traffic, bursts, scrapers, and clients that honour or ignore Retry-After
    Simulate(simulate::Args),
    /// See and change the rules in Postgres
    Rules(rules::Args),
    /// Show who was denied by a running service
    Violations(violations::Args),
    /// Show who blocked, allowed, granted, lifted or reset a key
    Actions(actions::Args),
    /// Test the delivery of alerts
    Alerts(alerts::Args),
    /// Check the health of a running service
    Health(health::Args),
    /// Watch a running service in the terminal: traffic, findings, hot keys, the store
    Top(top::Args),
    /// Measure a running service under load, and check that its limits hold
    Bench(Box<bench::Args>),
    /// Convert the configuration of another rate limiter to rules
    Import(import::Args),
    /// Print the JSON Schema of the configuration file, for editors
    Schema(schema::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print a manual page, or write all of them
    Man(man::Args),
    /// Deny every request of a key for a while
    Block(except::BlockArgs),
    /// Exempt a key from a rule
    Allow(except::AllowArgs),
    /// Give a key its own limit for a while
    Grant(except::GrantArgs),
    /// End the exception of a key
    Lift(except::LiftArgs),
    /// Show the exceptions in force
    Exceptions(except::ListArgs),
    /// Clear what a key has used
    Reset(except::ResetArgs),
    /// Draw how each algorithm treats the same traffic, from real decisions, as SVG
    Draw(draw::Args),
}

/// Runs this process's command line.
pub fn run() -> ExitCode {
    let ended = match Cli::parse().verb {
        Verb::Serve(args) => serve::run(*args),
        Verb::Proxy(args) => proxy::run(*args),
        Verb::Check(args) => check::run(args),
        Verb::Validate(args) => validate::run(args),
        Verb::Replay(args) => replay::run(args),
        Verb::Tune(args) => tune::run(*args),
        Verb::Simulate(args) => simulate::run(args),
        Verb::Rules(args) => rules::run(args),
        Verb::Violations(args) => violations::run(args),
        Verb::Actions(args) => actions::run(args),
        Verb::Alerts(args) => alerts::run(args),
        Verb::Health(args) => health::run(args),
        Verb::Top(args) => top::run(args),
        Verb::Bench(args) => bench::run(*args),
        Verb::Import(args) => import::run(args),
        Verb::Schema(args) => schema::run(args),
        Verb::Completions(args) => completions::run(args, Cli::command()),
        Verb::Man(args) => man::run(args, Cli::command()),
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
        // The reader of our output has closed it: `tollkeeper replay ... | head` is not an error.
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
