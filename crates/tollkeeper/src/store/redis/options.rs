//! How a store is connected.

use std::fmt;
use std::time::Duration;

use super::stored::NAMESPACE;
use crate::clock::Clock;

/// How a store is connected.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long a request may wait for its decision.
    pub deadline: Duration,
    /// A manual clock decides by its own time instead of the server's: for replay and tests.
    pub clock: Clock,
    /// Certificates for `rediss://`, where those that the system trusts are not meant.
    pub tls: Option<RedisTls>,
    /// What all keys begin with. Stores with different ones share nothing; no braces, please: they choose slots.
    pub namespace: String,
}

impl Default for RedisOptions {
    fn default() -> Self {
        RedisOptions {
            deadline: Duration::from_millis(20),
            clock: Clock::system(),
            tls: None,
            namespace: NAMESPACE.to_string(),
        }
    }
}

/// Certificates and key in PEM format.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// CA certificates for the server, instead of the system's trust store.
    pub authority: Option<Vec<u8>>,
    /// The certificate that this client shows,
    pub certificate: Option<Vec<u8>>,
    /// and its key.
    pub key: Option<Vec<u8>>,
}

/// Not the key.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedisTls { authority, certificate, .. } = self;
        let shown = (authority.is_some(), certificate.is_some());
        f.debug_struct("RedisTls").field("authority", &shown.0).field("certificate", &shown.1).finish_non_exhaustive()
    }
}
