//! Tollkeeper as a service: the `tollkeeper` command, and everything behind it.
//!
//! Most people want the command (`tollkeeper serve`, `tollkeeper proxy`) or the `tollkeeper` crate, which is the
//! limiter without the service. This library is what the command is made of: [`run`] is the whole command, and
//! [`metrics::FAMILIES`] lists every metric with its meaning.
//!
//! # How it is built
//!
//! Arrows go downward only: a module uses those below it, and never one that uses it (`./run lint` checks that).
//!
//! | layer | modules |
//! |---|---|
//! | the command line | `command` |
//! | the fronts | `front`: HTTP, Envoy's gRPC, the Redis protocol, the reverse proxy |
//! | decide, observe, answer | `service` |
//! | exceptions kept in Postgres too | `exceptions` |
//! | observability | `alerts`, `telemetry`, `observer`, `insight`, `audit`, `capture`, `unmatched`, `privacy`, `metrics` |
//! | where rules come from | `rules` (Postgres), `settings` and `config` (the file), `import` (other limiters' files) |
//! | input and output formats | `strict` (bodies, queries), `wire` (JSON), `openapi`, `route`, `moment` (time), `dashboard`, `example` (a request to try) |
//! | foundations | `background` (tasks), `database`, `outgoing` (outgoing HTTP calls), `tls`, `tokens` |

mod alerts;
mod audit;
mod background;
mod capture;
mod command;
mod config;
mod dashboard;
mod database;
mod example;
mod exceptions;
mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod import;
mod insight;
mod load;
pub mod metrics;
mod moment;
mod network;
mod observer;
mod openapi;
mod outgoing;
mod privacy;
mod route;
mod rules;
mod seal;
mod service;
mod settings;
mod strict;
mod telemetry;
mod tls;
mod tokens;
mod unmatched;
mod wire;

pub use command::run;
