//! What the file says of those who watch the service: alerts and telemetry.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollkeeper::{Span, parse_span};

use crate::outgoing::Destination;

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

/// How often something that stays wrong is told.
pub(crate) fn alerts_every(alerts: &AlertsConfig) -> anyhow::Result<Duration> {
    let every = alerts.every.as_deref().map_or(Ok(Span::from_secs(60)), parse_span)?;
    match (Span::SECOND..=Span::from_secs(86_400)).contains(&every) {
        true => Ok(every.as_duration()),
        false => Err(anyhow!("{every} is not between 1s and 1day; 60s is usual")),
    }
}

/// How often metrics are sent, if they are.
pub(crate) fn metrics_every(telemetry: &TelemetryConfig) -> anyhow::Result<Option<Duration>> {
    let every = telemetry.metrics.as_deref().map_or(Ok(Span::from_secs(15)), parse_span)?;
    match every {
        Span::ZERO => Ok(None),
        every if every >= Span::SECOND => Ok(Some(every.as_duration())),
        every => Err(anyhow!("{every} is less than 1s; 15s is usual, and 0s sends none")),
    }
}

/// What is wrong with either, by field.
pub(crate) fn problems(alerts: &AlertsConfig, telemetry: &TelemetryConfig) -> Vec<(String, anyhow::Error)> {
    let mut problems = Vec::new();
    let mut note = |field: &str, problem: anyhow::Error| problems.push((field.to_string(), problem));
    for (field, url) in [("alerts.webhook", &alerts.webhook), ("telemetry.otlp", &telemetry.otlp)] {
        if let Some(Err(problem)) = url.as_deref().map(Destination::parse) {
            note(field, anyhow!(problem));
        }
    }
    match &alerts.secret {
        Some(secret) if secret.trim().is_empty() => {
            note("alerts.secret", anyhow!("is empty; choose a long random one, or remove it"));
        }
        Some(_) if alerts.webhook.is_none() => {
            note("alerts.secret", anyhow!("signs nothing; set alerts.webhook, or remove it"));
        }
        _ => {}
    }
    if let Err(problem) = alerts_every(alerts) {
        note("alerts.every", problem);
    }
    if let Err(problem) = metrics_every(telemetry) {
        note("telemetry.metrics", problem);
    }
    if let Some(share) = telemetry.traces.filter(|share| !(0.0..=1.0).contains(share)) {
        note("telemetry.traces", anyhow!("{share} is not between 0 and 1; 0.01 traces one request in a hundred"));
    }
    problems
}
