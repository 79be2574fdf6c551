//! Creates spans for requests, and starts the exporter.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::HeaderMap;
use tokio::sync::{mpsc, oneshot};
use tollkeeper::{Store, Verdict};

use super::context::Sampler;
use super::counters::{SpanCounters, SpanOutcome};
use super::current::CURRENT;
use super::export::{self, Collector, Item};
use super::resource;
use super::settings::Settings;
use super::span::{Begun, Described, Ended};
use crate::config::operations::{OtlpProtocol, TelemetryConfig};
use crate::metrics::Family;
use crate::outgoing::{Caller, Spoken};
use crate::settings::operations::metrics_every;
use crate::tls::CallerFiles;

/// How many spans may wait to be sent.
const QUEUE: usize = 2_048;
/// How long a stopping service waits for its last spans and metrics to be sent.
const FLUSH: Duration = Duration::from_secs(2);

/// Creates spans, once a collector is configured; until then nothing is traced.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    counters: Arc<SpanCounters>,
    exporting: OnceLock<Exporting>,
}

/// The sampler, and the queue to the exporter.
#[derive(Debug)]
struct Exporting {
    sampler: Sampler,
    queue: mpsc::Sender<Item>,
}

impl Tracer {
    /// Starts exporting as configured; does nothing without a collector. OpenTelemetry's standard environment
    /// variables fill in what the file leaves out. `families` returns the current metrics.
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
        let caller = Caller::new(settings.to, spoken, CallerFiles::trusting("telemetry.ca", config.ca.clone()))?;
        let resource = resource::resource(&settings.service_name, instance, settings.attributes.as_deref());
        let collector = Collector::new(caller, settings.protocol, settings.headers, resource, self.counters.clone());
        // Set only here.
        let _ = self.exporting.set(exporting);
        crate::background::spawn(export::run(collector, waiting, metrics_every(config)?, families));
        Ok(())
    }

    /// Whether there is a collector.
    pub(crate) fn is_on(&self) -> bool {
        self.exporting.get().is_some()
    }

    /// Starts the span of a request, if it is sampled.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> Option<Begun> {
        let (context, parent) = self.exporting.get()?.sampler.decide(headers)?;
        Some(Begun::new(context, parent))
    }

    /// Handles a request within its span, if it has one.
    pub(crate) async fn within<T>(
        &self,
        begun: Option<Begun>,
        work: impl Future<Output = T>,
        describe: impl FnOnce(&T) -> Described,
    ) -> T {
        let Some(begun) = begun else { return work.await };
        let scope = CURRENT.scope(RefCell::new(begun.work()), async {
            let output = work.await;
            let decisions = CURRENT.with(|work| work.borrow_mut().take_decisions());
            (output, decisions)
        });
        let (output, decisions) = scope.await;
        if let Some(exporting) = self.exporting.get() {
            self.send(exporting, begun.end(describe(&output), decisions));
        }
        output
    }

    /// Adds a decision to the span of the current request, if it has one.
    pub(crate) fn note_decision(&self, store: &Store, verdict: impl FnOnce() -> Verdict, took: Duration) {
        if self.exporting.get().is_some() {
            let now = Instant::now();
            let started = now.checked_sub(took).unwrap_or(now);
            // An error means that it is not traced.
            let _ = CURRENT.try_with(|work| work.borrow_mut().add_decision(store, &verdict(), started));
        }
    }

    /// Sends what is left, for as long as a stopping service can wait.
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

    /// The outcomes of spans.
    pub(crate) fn family(&self) -> Family {
        self.counters.family()
    }

    /// Queues spans without waiting.
    fn send(&self, exporting: &Exporting, spans: Vec<Ended>) {
        let count = spans.len() as u64;
        if exporting.queue.try_send(Item::Spans(spans)).is_err() {
            self.counters.count(SpanOutcome::Dropped, count);
        }
    }
}
