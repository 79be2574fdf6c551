//! Exports to the collector, in a task of its own: one call at a time, each with a deadline, and nothing is sent
//! twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tollkeeper::Clock;
use tracing::warn;

use super::counters::{SpanCounters, SpanOutcome};
use super::families::{Covered, metric};
use super::messages::{Metrics, Resource, ResourceMetrics, ResourceSpans, Scope, ScopeMetrics, ScopeSpans, Traces};
use super::span::Ended;
use crate::config::operations::OtlpProtocol;
use crate::metrics::Family;
use crate::outgoing::{Answered, Caller};

/// Spans are sent when there are this many, or when the first has waited this long.
const BATCH: usize = 512;
const WAIT: Duration = Duration::from_secs(1);

/// What is waiting to be sent.
#[derive(Debug)]
pub(super) enum Item {
    /// The spans of one request.
    Spans(Vec<Ended>),
    /// Send everything now, including metrics; then confirm.
    Flush(oneshot::Sender<()>),
}

/// The collector.
pub(super) struct Collector {
    caller: Caller,
    protocol: OtlpProtocol,
    headers: HeaderMap,
    resource: Resource,
    clock: Clock,
    started_ns: u64,
    counters: Arc<SpanCounters>,
    /// When a failure was last logged: once a minute is enough.
    logged: Option<Instant>,
}

/// Sends spans as they come and metrics at their interval, until no sender is left.
pub(super) async fn run(
    mut collector: Collector,
    mut waiting: mpsc::Receiver<Item>,
    every: Option<Duration>,
    families: impl Fn() -> Vec<Family> + Send + Sync,
) {
    let mut batch: Vec<Ended> = Vec::new();
    let mut oldest = tokio::time::Instant::now();
    let mut next_metrics = every.map(|every| oldest + every);
    let never = || tokio::time::Instant::now() + Duration::from_secs(86_400);
    loop {
        let due = if batch.is_empty() { never() } else { oldest + WAIT };
        tokio::select! {
            item = waiting.recv() => match item {
                None => return,
                Some(Item::Spans(spans)) => {
                    if batch.is_empty() {
                        oldest = tokio::time::Instant::now();
                    }
                    batch.extend(spans);
                }
                Some(Item::Flush(done)) => {
                    collector.send_spans(std::mem::take(&mut batch)).await;
                    if every.is_some() {
                        collector.send_metrics(&families()).await;
                    }
                    let _ = done.send(());
                }
            },
            () = tokio::time::sleep_until(due) => {}
            () = tokio::time::sleep_until(next_metrics.unwrap_or_else(never)) => {
                collector.send_metrics(&families()).await;
                // Counted from now: a slow collector is not called more often to catch up.
                next_metrics = every.map(|every| tokio::time::Instant::now() + every);
            }
        }
        let is_due = !batch.is_empty() && tokio::time::Instant::now() >= oldest + WAIT;
        if batch.len() >= BATCH || is_due {
            collector.send_spans(std::mem::take(&mut batch)).await;
        }
    }
}

impl Collector {
    pub(super) fn new(
        caller: Caller,
        protocol: OtlpProtocol,
        headers: HeaderMap,
        resource: Resource,
        counters: Arc<SpanCounters>,
    ) -> Collector {
        let clock = Clock::system();
        let started_ns = now_ns(&clock);
        Collector { caller, protocol, headers, resource, clock, started_ns, counters, logged: None }
    }

    async fn send_spans(&mut self, batch: Vec<Ended>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let (now, now_ns) = (Instant::now(), now_ns(&self.clock));
        let at = |moment: Instant| now_ns.saturating_sub(now.saturating_duration_since(moment).as_nanos() as u64);
        let spans = batch.into_iter().map(|mut ended| {
            (ended.span.start_ns, ended.span.end_ns) = (at(ended.started), at(ended.ended));
            ended.span
        });
        let scope = ScopeSpans { scope: Some(Scope::ours()), spans: spans.collect() };
        let resource = ResourceSpans { resource: Some(self.resource.clone()), scopes: vec![scope] };
        let is_sent = self.send("trace", Traces { resources: vec![resource] }.encode_to_vec()).await;
        let outcome = if is_sent { SpanOutcome::Exported } else { SpanOutcome::Failed };
        self.counters.count(outcome, count);
    }

    async fn send_metrics(&mut self, families: &[Family]) {
        let covered = Covered { start_ns: self.started_ns, time_ns: now_ns(&self.clock) };
        let metrics = families.iter().map(|family| metric(family, covered)).collect();
        let scope = ScopeMetrics { scope: Some(Scope::ours()), metrics };
        let resource = ResourceMetrics { resource: Some(self.resource.clone()), scopes: vec![scope] };
        self.send("metrics", Metrics { resources: vec![resource] }.encode_to_vec()).await;
    }

    /// Whether the collector accepted it. A refused message is dropped rather than kept ahead of later ones.
    async fn send(&mut self, what: &str, message: Vec<u8>) -> bool {
        let mut headers = self.headers.clone();
        let answered = match self.protocol {
            OtlpProtocol::Http => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
                let below = if what == "trace" { "/v1/traces" } else { "/v1/metrics" };
                self.caller.post(below, headers, message).await.and_then(by_status)
            }
            OtlpProtocol::Grpc => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert(TE, HeaderValue::from_static("trailers"));
                let service = if what == "trace" { "trace.v1.TraceService" } else { "metrics.v1.MetricsService" };
                let below = format!("/opentelemetry.proto.collector.{service}/Export");
                self.caller.post(&below, headers, framed(&message)).await.and_then(by_grpc_status)
            }
        };
        if let Err(problem) = &answered
            && self.logged.is_none_or(|logged| logged.elapsed() >= Duration::from_secs(60))
        {
            self.logged = Some(Instant::now());
            warn!(
                "the collector at {} did not accept spans or metrics, which are dropped: {problem}",
                self.caller.to()
            );
        }
        answered.is_ok()
    }
}

fn by_status(answered: Answered) -> Result<(), String> {
    if answered.status.is_success() { Ok(()) } else { Err(answered.status.to_string()) }
}

/// The status is in the trailers, or in the headers of a trailers-only response.
fn by_grpc_status(answered: Answered) -> Result<(), String> {
    let code = answered.headers.get("grpc-status").and_then(|code| code.to_str().ok());
    match code {
        Some("0") => Ok(()),
        Some(code) => Err(format!("gRPC status {code}")),
        None => Err(format!("{}, and no gRPC status", answered.status)),
    }
}

/// One uncompressed message in gRPC framing.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], length.to_be_bytes().as_slice(), message].concat()
}

fn now_ns(clock: &Clock) -> u64 {
    clock.now().as_micros() * 1_000
}
