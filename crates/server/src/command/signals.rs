//! Signals of the operating system. Handlers are in place when these functions return; the futures wait for the
//! signals.

use std::io;
use std::sync::Arc;

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

/// SIGHUP: asks for rules and certificates to be reloaded.
pub(super) struct Hangup(#[cfg(unix)] tokio::signal::unix::Signal);

#[cfg(unix)]
pub(super) fn hangup() -> io::Result<Hangup> {
    use tokio::signal::unix::{SignalKind, signal};
    Ok(Hangup(signal(SignalKind::hangup())?))
}

/// Other systems have no such signal.
#[cfg(not(unix))]
pub(super) fn hangup() -> io::Result<Hangup> {
    Ok(Hangup())
}

impl Hangup {
    /// The next one; `None` if there will be none.
    pub(super) async fn recv(&mut self) -> Option<()> {
        #[cfg(unix)]
        return self.0.recv().await;
        #[cfg(not(unix))]
        std::future::pending().await
    }
}

/// Resolves when the process is asked to stop.
#[cfg(not(unix))]
pub(super) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a handler the process ends immediately on the signal, which is acceptable.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        tracing::info!("stopping: finishing the requests under way");
    })
}

/// Acts on every SIGHUP. The handler is in place when this returns.
pub(super) fn on_hangup(act: impl Fn()) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = hangup()?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            act();
        }
    })
}

/// SIGHUP reloads certificates.
pub(super) fn renew_on_hangup(certificates: Vec<Arc<dyn Renew>>) -> io::Result<impl Future<Output = ()>> {
    on_hangup(move || certificates.iter().for_each(|certificates| certificates.renew()))
}
