//! Alerts when the service is degraded: its store is unreachable or full, or new rules were refused.
//!
//! No request takes part: a task watches existing counters and finds incidents in them. Each incident raises an alert
//! when it starts, at most once per `every` while it lasts, and when it is over: to the log, in the metrics and to a
//! webhook. So alerts do not flood, however many requests fail.

mod alert;
mod counters;
mod incident;
mod signs;
mod watch;
mod webhook;

pub(crate) use alert::{Alert, Kind, Status};
pub(crate) use counters::Counters;
pub(crate) use signs::Watched;
pub(crate) use webhook::Webhook;

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tollkeeper::Store;
use tracing::{error, info, warn};

use crate::config::operations::AlertsConfig;
use crate::settings::operations::alerts_every;
use counters::Delivery;
use signs::Signs;
use watch::Watch;

/// How many alerts may wait for the webhook. There are more only if the receiver is unreachable for very long.
const QUEUE: usize = 64;

/// Starts watching, for as long as the process runs, under this instance name.
pub(crate) fn start(watched: Watched, config: &AlertsConfig, instance: String) -> anyhow::Result<()> {
    let every = alerts_every(config)?;
    let webhook = Webhook::of(config)?;
    let (queue, waiting) = mpsc::channel(QUEUE);
    if let Some(webhook) = webhook {
        info!("alerts go to {}", webhook.to());
        crate::background::spawn(webhook::deliver_all(webhook, waiting, watched.counters.clone()));
    }
    let watch = Watch::new(every, instance);
    crate::background::spawn(run(watch, watched, queue));
    Ok(())
}

async fn run(mut watch: Watch, watched: Watched, queue: mpsc::Sender<Alert>) {
    // An open circuit breaker stays open for at least 100 ms, so this cannot miss it.
    let is_shared = !matches!(watched.limiter.store(), Store::Memory(_));
    let pause = Duration::from_millis(if is_shared { 50 } else { 500 });
    let (started, clock) = (Instant::now(), tollkeeper::Clock::system());
    loop {
        tokio::time::sleep(pause).await;
        let signs = Signs::of(&watched);
        for alert in watch.look(started.elapsed(), clock.now(), &signs, || watched.metrics.rules_without_store()) {
            raise(alert, &watched.counters, &queue);
        }
    }
}

fn raise(alert: Alert, counters: &Counters, queue: &mpsc::Sender<Alert>) {
    let (kind, status, summary) = (alert.kind.name(), alert.status.name(), &alert.summary);
    match (alert.status, alert.kind) {
        (Status::Over, _) => info!(target: "tollkeeper::alert", kind, status, "{summary}"),
        (_, Kind::BreakerOpen) => error!(target: "tollkeeper::alert", kind, status, "{summary}"),
        _ => warn!(target: "tollkeeper::alert", kind, status, "{summary}"),
    }
    counters.count(alert.kind, alert.status);
    match queue.try_send(alert) {
        // Closed: there is no webhook.
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        Err(mpsc::error::TrySendError::Full(_)) => counters.count_delivery(Delivery::Dropped),
    }
}

/// The name of an instance that listens here: `HOST:PORT`.
pub(crate) fn instance(config: &AlertsConfig, port: u16) -> String {
    config.instance.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
        let host = host.map(|host| host.trim().to_string()).unwrap_or_default();
        format!("{}:{port}", if host.is_empty() { "tollkeeper" } else { &host })
    })
}
