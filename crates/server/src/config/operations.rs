//! What the file says of those who watch the service: alerts and telemetry.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who is told when something is wrong. The log and the metrics are told in any case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AlertsConfig {
    /// A URL that alerts are posted to as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    /// Signs what is posted, so that the receiver knows from whom it comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    /// While something stays wrong, it is told again this often: `60s` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) every: Option<String>,
    /// What this instance is called: its host and port unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// A file (PEM) of those who vouch for an https:// webhook, instead of those that the system trusts.
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
    /// The share of requests that are traced, from 0 to 1, where their callers have not decided it: 0.01 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(crate) traces: Option<f64>,
    /// How often metrics are sent: `15s` unless told, `0s` for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
    /// What the service is called: `tollkeeper` unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_name: Option<String>,
    /// A file (PEM) of those who vouch for an https:// collector, instead of those that the system trusts.
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
