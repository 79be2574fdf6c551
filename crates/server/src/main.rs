//! The `tollgate` command: a rate limiter as a service, and the tools around its rules.

mod audit;
mod command;
mod config;
mod dashboard;
#[allow(dead_code, reason = "rules and the audit come to it")]
mod database;
mod explain;
mod front;
mod import;
mod insight;
mod metrics;
mod openapi;
mod settings;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
