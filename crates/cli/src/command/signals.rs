//! Signals of the operating system. Handlers are in place when these functions return; the futures wait for the
//! signals.

use std::io;
use std::sync::Arc;

use crate::tls::Renew;

/// How the process was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Ctrl-C.
    ToInterrupt,
    /// SIGTERM, as orchestrators send it.
    ToTerminate,
}

/// Waits for each signal to stop.
#[cfg(unix)]
pub struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Stop {
    pub fn new() -> io::Result<Stop> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub async fn asked(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::ToInterrupt,
            _ = self.terminate.recv() => Asked::ToTerminate,
        }
    }
}

/// SIGHUP: asks for rules and certificates to be reloaded.
pub struct Hangup(#[cfg(unix)] tokio::signal::unix::Signal);

#[cfg(unix)]
pub fn hangup() -> io::Result<Hangup> {
    use tokio::signal::unix::{SignalKind, signal};
    Ok(Hangup(signal(SignalKind::hangup())?))
}

/// Other systems have no such signal.
#[cfg(not(unix))]
pub fn hangup() -> io::Result<Hangup> {
    Ok(Hangup())
}

impl Hangup {
    /// The next one; `None` if there will be none.
    pub async fn recv(&mut self) -> Option<()> {
        #[cfg(unix)]
        return self.0.recv().await;
        #[cfg(not(unix))]
        std::future::pending().await
    }
}

/// Waits for each signal to stop.
#[cfg(not(unix))]
pub struct Stop;

#[cfg(not(unix))]
impl Stop {
    pub fn new() -> io::Result<Stop> {
        Ok(Stop)
    }

    pub async fn asked(&mut self) -> Asked {
        // Without a handler the process ends immediately on the signal, which is acceptable.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Asked::ToInterrupt
    }
}

/// Acts on every SIGHUP. The handler is in place when this returns.
pub fn on_hangup(act: impl Fn()) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = hangup()?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            act();
        }
    })
}

/// SIGHUP reloads certificates.
pub fn renew_on_hangup(certificates: Vec<Arc<dyn Renew>>) -> io::Result<impl Future<Output = ()>> {
    on_hangup(move || certificates.iter().for_each(|certificates| certificates.renew()))
}
