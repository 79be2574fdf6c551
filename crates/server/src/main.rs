//! The `tollkeeper` command: a rate limiter as a service, and the tools around its rules.

mod alerts;
mod audit;
mod command;
mod config;
mod dashboard;
mod database;
mod explain;
mod front;
mod import;
mod insight;
mod metrics;
mod openapi;
mod outgoing;
mod rules;
mod settings;
mod telemetry;
mod tls;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
