//! Alert and telemetry settings, and their errors.

use std::time::Duration;

use anyhow::anyhow;
use tollkeeper::{Span, parse_span};

use crate::config::operations::{AlertsConfig, TelemetryConfig};
use crate::outgoing::Destination;

/// How often an ongoing incident is repeated.
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

/// The errors in both, by field.
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
            note("alerts.secret", anyhow!("has no effect; set alerts.webhook, or remove it"));
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
