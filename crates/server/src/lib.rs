//! Tollkeeper as a service: the `tollkeeper` command, and everything behind it.

mod alerts;
mod audit;
mod capture;
mod command;
mod config;
mod dashboard;
mod database;
mod front;
mod import;
mod insight;
pub mod metrics;
mod moment;
mod observer;
mod openapi;
mod outgoing;
mod privacy;
mod route;
mod rules;
mod service;
mod settings;
mod strict;
mod telemetry;
mod tls;
mod wire;

pub use command::run;
