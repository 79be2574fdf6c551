//! What operators rely on: alerts, traces, metrics, logs and the files of deploy/, with real receivers, a real Redis
//! that dies, a real Prometheus and its tools.

mod alerts;
mod deploy;
mod logs;
mod metrics;
mod receiver;
mod telemetry;
