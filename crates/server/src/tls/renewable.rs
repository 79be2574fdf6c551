//! Certificates that are read again while the service runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// What was made of certificates, and can be made again when their files have changed.
pub(crate) struct Renewable<C> {
    /// Whose certificates they are, in the log.
    whose: &'static str,
    current: ArcSwap<C>,
    read: Box<dyn Fn() -> anyhow::Result<C> + Send + Sync>,
}

impl<C> Renewable<C> {
    pub(crate) fn new(
        whose: &'static str,
        read: impl Fn() -> anyhow::Result<C> + Send + Sync + 'static,
    ) -> anyhow::Result<Arc<Renewable<C>>> {
        let current = ArcSwap::from_pointee(read()?);
        Ok(Arc::new(Renewable { whose, current, read: Box::new(read) }))
    }

    pub(crate) fn current(&self) -> Arc<C> {
        self.current.load_full()
    }
}

/// What the files of certificates are read for, whoever uses it.
pub(crate) trait Renew: Send + Sync {
    /// Reloads the files, for new connections. If they cannot be used, nothing changes.
    fn renew(&self);
}

impl<C: Send + Sync> Renew for Renewable<C> {
    fn renew(&self) {
        match (self.read)() {
            Ok(read) => {
                self.current.store(Arc::new(read));
                tracing::info!("{} certificates were reloaded, for new connections", self.whose);
            }
            Err(error) => tracing::error!("{} certificates stay as they were: {error:#}", self.whose),
        }
    }
}

/// Keys stay out of logs.
impl<C> fmt::Debug for Renewable<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Renewable({})", self.whose)
    }
}
