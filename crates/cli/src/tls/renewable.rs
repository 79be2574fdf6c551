//! Certificates that can be reloaded while the service runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// A TLS configuration that can be rebuilt when its files have changed.
pub struct Renewable<C> {
    /// What the certificates belong to, for the log.
    whose: &'static str,
    current: ArcSwap<C>,
    read: Box<dyn Fn() -> anyhow::Result<C> + Send + Sync>,
}

impl<C> Renewable<C> {
    pub fn new(
        whose: &'static str,
        read: impl Fn() -> anyhow::Result<C> + Send + Sync + 'static,
    ) -> anyhow::Result<Arc<Renewable<C>>> {
        let current = ArcSwap::from_pointee(read()?);
        Ok(Arc::new(Renewable { whose, current, read: Box::new(read) }))
    }

    pub fn current(&self) -> Arc<C> {
        self.current.load_full()
    }
}

/// Reloads certificates, whatever they are used for.
pub trait Renew: Send + Sync {
    /// Reloads the files, for new connections. If they are invalid, nothing changes.
    fn renew(&self);
}

impl<C: Send + Sync> Renew for Renewable<C> {
    fn renew(&self) {
        match (self.read)() {
            Ok(read) => {
                self.current.store(Arc::new(read));
                tracing::info!("{} certificates were reloaded, for new connections", self.whose);
            }
            Err(error) => tracing::error!(
                "{} certificates were not reloaded, and the old ones stay in use: {error:#}",
                self.whose
            ),
        }
    }
}

/// Keys stay out of logs.
impl<C> fmt::Debug for Renewable<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Renewable({})", self.whose)
    }
}
