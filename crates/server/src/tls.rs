//! TLS, for whoever comes to a front and for where the proxy goes: 1.2 and 1.3, with the provider that the Redis store
//! uses too.
//!
//! Certificates are read when the service starts and again when it is told to. What cannot be used is refused with the
//! file and the reason, and what was in use stays.

mod acceptor;
mod client;
mod pem;
mod server;
mod stream;

pub(crate) use acceptor::{Acceptor, Protocol, client_name};
pub(crate) use client::{UpstreamFiles, caller_config, upstream_config};
pub(crate) use server::server_config;
pub(crate) use stream::Stream;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

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
    /// Reads the files anew, for connections to come. If they cannot be used, nothing changes.
    fn renew(&self);
}

impl<C: Send + Sync> Renew for Renewable<C> {
    fn renew(&self) {
        match (self.read)() {
            Ok(read) => {
                self.current.store(Arc::new(read));
                tracing::info!("{} certificates were read anew, for new connections", self.whose);
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
