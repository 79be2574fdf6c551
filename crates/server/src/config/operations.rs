//! What the file says of those who watch the service: alerts and telemetry.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where alerts go when something is wrong. The log and the metrics show them in any case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AlertsConfig {
    /// A URL that alerts are posted to as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    /// Signs what is posted, so that the receiver knows from whom it comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    /// While something stays wrong, the alert is repeated this often: `60s` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) every: Option<String>,
    /// What this instance is called: its host and port by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// CA certificates (PEM) for an https:// webhook, instead of the system's trust store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
}

/// Traces and metrics for a collector of OpenTelemetry. Nothing is sent unless it has an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryConfig {
    /// Where the collector listens for OTLP, such as `http://collector:4318`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp: Option<String>,
    /// How it is spoken to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<OtlpProtocol>,
    /// The share of requests that are traced, from 0 to 1, where their callers have not decided it: 0.01 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) traces: Option<f64>,
    /// How often metrics are sent: `15s` by default, `0s` for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
    /// What the service is called: `tollkeeper` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_name: Option<String>,
    /// CA certificates (PEM) for an https:// collector, instead of the system's trust store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
}

/// The ways to speak OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum OtlpProtocol {
    /// Over HTTP/1.1, usually port 4318.
    #[default]
    #[serde(rename = "http/protobuf")]
    Http,
    /// Over HTTP/2, usually port 4317.
    #[serde(rename = "grpc")]
    Grpc,
}
