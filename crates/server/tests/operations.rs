//! What those who run the service rely on: alerts, traces, metrics, logs and the files of deploy/, with real receivers,
//! a real Redis that dies, a real Prometheus and its tools.

#![allow(clippy::unwrap_used, missing_docs)]

mod envoy_client;
mod running;
#[path = "../../tollkeeper/tests/servers/mod.rs"]
mod servers;

#[path = "operations/alerts.rs"]
mod alerts;
#[allow(dead_code)] // Of the tests of TLS.
#[path = "tls/authority.rs"]
mod authority;
#[path = "operations/deploy.rs"]
mod deploy;
#[path = "operations/logs.rs"]
mod logs;
#[path = "operations/receiver.rs"]
mod receiver;
#[path = "operations/telemetry.rs"]
mod telemetry;
