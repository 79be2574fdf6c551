//! The `tollgate` command: a rate limiter as a service, and the tools around its rules.

mod alerts;
mod command;
mod config;
mod explain;
mod front;
mod import;
mod metrics;
mod openapi;
mod outgoing;
mod settings;
mod telemetry;
mod tls;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
