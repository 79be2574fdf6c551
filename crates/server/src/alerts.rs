//! Telling somebody that the service decides worse than it should: without its store, in a full store, by old rules.
//!
//! Nothing on a request's way takes part: a watcher looks at what is counted anyway, and finds incidents in it. Each is told
//! when it starts, at most once per `every` while it lasts, and when it is over, to the log, in the metrics and to a webhook.
//! So there is no flood, however many requests fail.

mod alert;
mod incident;
mod watch;
mod webhook;

pub(crate) use alert::{Alert, KINDS, Kind, STATUSES, Status};
pub(crate) use webhook::{Outcome, Webhook};

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tollkeeper::Store;
use tracing::{error, info, warn};

use crate::config::operations::{AlertsConfig, alerts_every};
use crate::service::Service;
use watch::Watch;

/// How many alerts may wait for the webhook. More come only when a receiver is away for very long.
const QUEUE: usize = 64;

/// Watches a service for as long as it runs, under this name.
pub(crate) fn start(service: &Arc<Service>, config: &AlertsConfig, instance: String) -> anyhow::Result<()> {
    let every = alerts_every(config)?;
    let webhook = Webhook::of(config)?;
    let (queue, waiting) = mpsc::channel(QUEUE);
    if let Some(webhook) = webhook {
        info!("alerts go to {}", webhook.to());
        tokio::spawn(webhook::deliver_all(webhook, waiting, service.clone()));
    }
    let watch = Watch::new(every, instance);
    tokio::spawn(run(watch, service.clone(), queue));
    Ok(())
}

async fn run(mut watch: Watch, service: Arc<Service>, queue: mpsc::Sender<Alert>) {
    // An open breaker stays so for 100 ms at least: it cannot be missed.
    let is_shared = matches!(service.limiter.store(), Store::Redis(_));
    let pause = Duration::from_millis(if is_shared { 50 } else { 500 });
    let (started, clock) = (Instant::now(), tollkeeper::Clock::system());
    loop {
        tokio::time::sleep(pause).await;
        let signs = watch::Signs::of(&service);
        for alert in watch.look(started.elapsed(), clock.now(), &signs, || service.metrics.rules_without_store()) {
            tell(alert, &service, &queue);
        }
    }
}

fn tell(alert: Alert, service: &Service, queue: &mpsc::Sender<Alert>) {
    let (kind, status, summary) = (alert.kind.name(), alert.status.name(), &alert.summary);
    match (alert.status, alert.kind) {
        (Status::Over, _) => info!(target: "tollkeeper::alert", kind, status, "{summary}"),
        (_, Kind::BreakerOpen) => error!(target: "tollkeeper::alert", kind, status, "{summary}"),
        _ => warn!(target: "tollkeeper::alert", kind, status, "{summary}"),
    }
    service.metrics.alerts.count(alert.kind, alert.status);
    match queue.try_send(alert) {
        // Closed: there is no webhook.
        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        Err(mpsc::error::TrySendError::Full(_)) => service.metrics.alerts.count_delivery(Outcome::Dropped),
    }
}

/// What an instance is called that listens here: `HOST:PORT`.
pub(crate) fn instance(config: &AlertsConfig, port: u16) -> String {
    config.instance.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
        let host = host.map(|host| host.trim().to_string()).unwrap_or_default();
        format!("{}:{port}", if host.is_empty() { "tollkeeper" } else { &host })
    })
}
