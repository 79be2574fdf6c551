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
//! | observability | `alerts`, `telemetry`, `observer`, `insight`, `audit`, `capture`, `unmatched`, `metrics` |
//! | where rules come from | `rules` (Postgres), `settings` (the file) |
//! | input and output formats | `wire` (JSON), `openapi`, `route`, `dashboard`, `example` (a request to try) |
//! | foundations | `database`, and the crate `tollkeeper-cli`: `config` (the file), `import` (other limiters' files), `strict` (bodies, queries), `moment` (time), `privacy`, `tls`, `tokens`, `outgoing` (outgoing HTTP calls), `background` (tasks) |

mod alerts;
mod audit;
mod capture;
mod command;
mod dashboard;
mod database;
mod example;
mod exceptions;
mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod insight;
mod load;
pub mod metrics;
mod observer;
mod openapi;
mod route;
mod rules;
mod seal;
mod service;
mod settings;
mod telemetry;
mod unmatched;
mod wire;

// What no decision passes through is a crate of its own, and has the same names here.
use tollkeeper_cli::{background, config, import, moment, network, outgoing, privacy, strict, tls, tokens};

pub use command::run;
