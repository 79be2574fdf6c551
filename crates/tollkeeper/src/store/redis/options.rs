//! Options for connecting a store.

use std::fmt;
use std::time::Duration;

use super::stored::NAMESPACE;
use crate::clock::Clock;

/// Options for connecting a store.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long a request may wait for its decision.
    pub deadline: Duration,
    /// A manual clock is used instead of the server's: for replay and tests.
    pub clock: Clock,
    /// Certificates for `rediss://`, instead of the system's trust store.
    pub tls: Option<RedisTls>,
    /// The prefix of all keys. Stores with different prefixes share nothing. Do not use braces: they select hash
    /// slots.
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
    /// The client certificate,
    pub certificate: Option<Vec<u8>>,
    /// and its key.
    pub key: Option<Vec<u8>>,
}

/// Does not print the key.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedisTls { authority, certificate, .. } = self;
        let shown = (authority.is_some(), certificate.is_some());
        f.debug_struct("RedisTls").field("authority", &shown.0).field("certificate", &shown.1).finish_non_exhaustive()
    }
}
