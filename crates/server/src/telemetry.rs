//! Traces and metrics for an OpenTelemetry collector, by OTLP.
//!
//! A request that is traced gets a span, and each decision made for it a span below that one. Names and attributes are
//! ours: routes, rules, outcomes; never a key, a path or a header of a client. What the collector does not accept
//! in time is dropped and counted, so a slow or unreachable collector slows nothing and fills no memory.

mod context;
mod counters;
mod export;
mod families;
mod messages;
mod resource;
mod span;

pub(crate) use context::inject;
pub(crate) use span::Described;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderMap;
use tokio::sync::{mpsc, oneshot};

use crate::config::operations::{OtlpProtocol, TelemetryConfig};
use crate::metrics::Family;
use crate::outgoing::{Caller, Destination, Spoken};
use crate::settings::operations::metrics_every;
use context::Sampler;
use counters::{SpanCounters, SpanOutcome};
use export::{Collector, Item};
use span::Ended;

/// How many spans may wait to be sent.
const QUEUE: usize = 2_048;
/// How long a service that stops waits for its last spans and metrics to be sent.
const FLUSH: Duration = Duration::from_secs(2);

/// Makes spans of requests, once a collector is known; until then nothing is traced.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    counters: Arc<SpanCounters>,
    exporting: OnceLock<Exporting>,
}

/// Which requests are traced, and the queue of what is sent.
#[derive(Debug)]
struct Exporting {
    sampler: Sampler,
    queue: mpsc::Sender<Item>,
}

impl Tracer {
    /// Starts to send what a configuration asks for; nothing if it names no collector. The standard variables of
    /// OpenTelemetry fill in what the file leaves out. `families` gives the metrics of the moment.
    pub(crate) fn start(
        &self,
        config: &TelemetryConfig,
        instance: &str,
        families: impl Fn() -> Vec<Family> + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let Some(settings) = Settings::new(config, |name| std::env::var(name).ok())? else { return Ok(()) };
        let (queue, waiting) = mpsc::channel(QUEUE);
        let exporting = Exporting { sampler: Sampler::new(settings.traces)?, queue };
        tracing::info!("traces and metrics go to {} ({} of requests)", settings.to, settings.traces);
        let spoken = if settings.protocol == OtlpProtocol::Grpc { Spoken::Http2 } else { Spoken::Http1 };
        let caller = Caller::new(settings.to, spoken, "telemetry.ca", config.ca.clone())?;
        let resource = resource::resource(&settings.service_name, instance, settings.attributes.as_deref());
        let collector = Collector::new(caller, settings.protocol, settings.headers, resource, self.counters.clone());
        // Nobody else sets it.
        let _ = self.exporting.set(exporting);
        tokio::spawn(export::run(collector, waiting, metrics_every(config)?, families));
        Ok(())
    }

    /// Sends what is left, for as long as a service that stops can wait.
    pub(crate) async fn finish(&self) {
        let Some(Exporting { queue, .. }) = self.exporting.get() else { return };
        let (done, is_done) = oneshot::channel();
        let flush = async {
            if queue.send(Item::Flush(done)).await.is_ok() {
                let _ = is_done.await;
            }
        };
        if tokio::time::timeout(FLUSH, flush).await.is_err() {
            tracing::warn!("the collector did not accept the last spans and metrics within {FLUSH:?}");
        }
    }

    /// What became of the spans.
    pub(crate) fn family(&self) -> Family {
        self.counters.family()
    }

    /// Hands spans over, without waiting.
    fn send(&self, exporting: &Exporting, spans: Vec<Ended>) {
        let count = spans.len() as u64;
        if exporting.queue.try_send(Item::Spans(spans)).is_err() {
            self.counters.count(SpanOutcome::Dropped, count);
        }
    }
}

/// What is sent, and where.
#[derive(Debug)]
struct Settings {
    to: Destination,
    protocol: OtlpProtocol,
    traces: f64,
    service_name: String,
    headers: HeaderMap,
    /// More of the resource, as `name=value,name=value`.
    attributes: Option<String>,
}

impl Settings {
    fn new(config: &TelemetryConfig, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Settings>> {
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
