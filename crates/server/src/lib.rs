//! Tollkeeper as a service: the `tollkeeper` command, and everything behind it.

mod alerts;
mod audit;
mod capture;
mod command;
mod config;
mod dashboard;
mod database;
mod explain;
mod front;
mod import;
mod insight;
pub mod metrics;
mod openapi;
mod outgoing;
mod privacy;
mod route;
mod rules;
mod service;
mod settings;
mod telemetry;
mod tls;
mod wire;

pub use command::run;
