//! What the operating system tells a running service. Handlers are in place when these functions return; the futures
//! wait for the signals.

use std::fmt;
use std::io;
use std::sync::Arc;

#[cfg(unix)]
use tollgate::Limiter;
use tollgate::Policy;

use crate::front::Service;
use crate::tls::Renew;

/// Resolves when the process is asked to stop.
#[cfg(unix)]
pub(super) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping: finishing the requests under way");
    })
}

/// On SIGHUP the rules are read anew. A bad file changes nothing: the last good rules stay in force.
#[cfg(unix)]
pub(super) fn reload_on_hangup<E: fmt::Display>(
    load: impl Fn() -> Result<Policy, E>,
    service: Arc<Service>,
) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            let loaded = load().map_err(|error| error.to_string());
            match service.metrics.reloads.note(loaded.and_then(|policy| not_emptied(policy, &service.limiter))) {
                Ok(policy) => {
                    let count = policy.rules().len();
                    service.limiter.replace_policy(policy);
                    tracing::info!("{count} rules are in force now; other settings change at the next start");
                }
                Err(error) => tracing::error!("the rules stay as they were: {error}"),
            }
        }
    })
}

/// A file that is being written is empty for a moment, and that must not open every gate.
#[cfg(unix)]
fn not_emptied(policy: Policy, limiter: &Limiter) -> Result<Policy, String> {
    if policy.rules().is_empty() && !limiter.policy().rules().is_empty() {
        return Err("the file has none; to let everything pass, keep them with `active: false`".into());
    }
    Ok(policy)
}

/// Resolves when the process is asked to stop.
#[cfg(not(unix))]
pub(super) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a handler the process ends at once when asked to, which is all that is left then.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        tracing::info!("stopping: finishing the requests under way");
    })
}

/// On SIGHUP certificates are read anew.
#[cfg(unix)]
pub(super) fn renew_on_hangup(certificates: Vec<Arc<dyn Renew>>) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            certificates.iter().for_each(|certificates| certificates.renew());
        }
    })
}

/// There is no such signal here.
#[cfg(not(unix))]
pub(super) fn renew_on_hangup(_: Vec<Arc<dyn Renew>>) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::ready(()))
}

/// There is no such signal here.
#[cfg(not(unix))]
pub(super) fn reload_on_hangup<E: fmt::Display>(
    _: impl Fn() -> Result<Policy, E>,
    _: Arc<Service>,
) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::ready(()))
}
