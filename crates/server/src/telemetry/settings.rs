//! Telemetry settings, from the configuration and OpenTelemetry's standard environment variables.

use anyhow::Context as _;
use http::HeaderMap;

use super::resource;
use crate::config::operations::{OtlpProtocol, TelemetryConfig};
use crate::outgoing::Destination;

/// What is sent, and where.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) to: Destination,
    pub(super) protocol: OtlpProtocol,
    /// The share of requests that are traced.
    pub(super) traces: f64,
    pub(super) service_name: String,
    pub(super) headers: HeaderMap,
    /// More attributes of the resource, as `name=value,name=value`.
    pub(super) attributes: Option<String>,
}

impl Settings {
    pub(super) fn new(
        config: &TelemetryConfig,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Settings>> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is_disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let (field, otlp) = match (&config.otlp, variable("OTEL_EXPORTER_OTLP_ENDPOINT")) {
            _ if is_disabled => return Ok(None),
            (Some(otlp), _) => ("telemetry.otlp", otlp.clone()),
            (None, Some(otlp)) => ("OTEL_EXPORTER_OTLP_ENDPOINT", otlp),
            (None, None) => return Ok(None),
        };
        let to = Destination::parse(&otlp).map_err(|problem| anyhow::anyhow!("{field}: {problem}"))?;
        let protocol = match (config.protocol, variable("OTEL_EXPORTER_OTLP_PROTOCOL").as_deref()) {
            (Some(protocol), _) => protocol,
            (None, None | Some("http/protobuf")) => OtlpProtocol::Http,
            (None, Some("grpc")) => OtlpProtocol::Grpc,
            (None, Some(other)) => {
                anyhow::bail!("OTEL_EXPORTER_OTLP_PROTOCOL: {other:?} is not supported; use http/protobuf or grpc")
            }
        };
        let traces = match (config.traces, variable("OTEL_TRACES_SAMPLER_ARG")) {
            (Some(share), _) => share,
            (None, None) => 0.01,
            (None, Some(text)) => text
                .trim()
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))
                .with_context(|| format!("OTEL_TRACES_SAMPLER_ARG: {text:?} is not a number from 0 to 1"))?,
        };
        let name = config.service_name.clone().or_else(|| variable("OTEL_SERVICE_NAME"));
        Ok(Some(Settings {
            to,
            protocol,
            traces,
            service_name: name.unwrap_or_else(|| "tollkeeper".into()),
            headers: resource::headers(variable("OTEL_EXPORTER_OTLP_HEADERS").as_deref())?,
            attributes: variable("OTEL_RESOURCE_ATTRIBUTES"),
        }))
    }
}

#[cfg(test)]
mod tests;
