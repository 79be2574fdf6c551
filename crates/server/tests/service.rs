//! The service, the proxy and the commands as people run them, in one binary. `cargo test -p tollkeeper-server --test service
//! live` runs those of `live.rs`.

#![allow(clippy::unwrap_used, missing_docs)]

mod alternatives;
mod answered;
mod bench;
mod cli;
mod crowds;
mod dashboard;
mod envoy_client;
mod grpc;
mod import;
mod instances;
mod live;
mod operations;
mod overload;
mod proxy;
mod resp;
mod tls;
mod tokens;
mod tools;
mod top;
mod tune;
