//! The parts of the file for operators: alerts and telemetry.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where alerts go when something is wrong. The log and the metrics show them in any case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlertsConfig {
    /// A URL that alerts are posted to as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Signs what is posted, so that the receiver can verify the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// While an incident lasts, its alert is repeated this often, from `1s` to `1day`: `60s` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The name of this instance: its host and port by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// CA certificates (PEM) for an https:// webhook, instead of the system's trust store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// Traces and metrics for an OpenTelemetry collector. Off by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// Where the collector listens for OTLP, such as `http://collector:4318`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
    /// The OTLP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<OtlpProtocol>,
    /// The share of requests to trace, from 0 to 1, unless the caller has decided: 0.01 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub traces: Option<f64>,
    /// How often metrics are sent: `15s` by default, `0s` for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// The service name: `tollkeeper` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// CA certificates (PEM) for an https:// collector, instead of the system's trust store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// The protocols of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OtlpProtocol {
    /// Over HTTP/1.1, usually port 4318.
    #[default]
    #[serde(rename = "http/protobuf")]
    Http,
    /// Over HTTP/2, usually port 4317.
    #[serde(rename = "grpc")]
    Grpc,
}
