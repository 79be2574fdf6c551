//! Counts connections, in total and per address.
//!
//! An address that has reached its limit gets no more, so that no client can use up all connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper::http::Identity;
use tollkeeper::sparing::Sparing;

use crate::metrics::{Connections, Refused};
use crate::network;

/// The connections of one front.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    /// Their counters.
    counted: Arc<Connections>,
    /// Trusted proxies carry many clients, so they have no limit of their own.
    trusted: Identity,
    /// Set while the service drains before stopping.
    draining: Arc<AtomicBool>,
    here: Mutex<HashMap<IpAddr, usize>>,
    logged: Logged,
}

/// Log lines that are rate-limited, however often they occur.
#[derive(Debug)]
struct Logged {
    crowd: Sparing,
    full: Sparing,
    trouble: Sparing,
    reset: Sparing,
}

impl Default for Logged {
    fn default() -> Logged {
        const PAUSE: Duration = Duration::from_secs(30);
        let sparing = || Sparing::every(PAUSE);
        Logged { crowd: sparing(), full: sparing(), trouble: sparing(), reset: sparing() }
    }
}

impl Visitors {
    pub(crate) fn new(counted: Arc<Connections>, trusted: Identity, draining: Arc<AtomicBool>) -> Arc<Visitors> {
        Arc::new(Visitors { counted, trusted, draining, ..Visitors::default() })
    }

    /// Whether clients should reconnect, which may lead them to another instance.
    pub(crate) fn should_leave(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Admits a connection, unless its address has reached its limit.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Visit> {
        let client = network::of_client(address);
        let mut here = self.here();
        let own = here.entry(client).or_default();
        if *own >= most && !self.trusted.trusts(address) {
            drop(here);
            self.counted.refuse(Refused::PerAddress);
            if let Some(left_out) = self.logged.crowd.turn() {
                tracing::warn!(
                    "{client} has {most} connections, which is all that one address may have, and gets no more; raise \
                     listen.connections_per_address, or name it in trusted_proxies if it is your proxy{left_out}"
                );
            }
            return None;
        }
        *own += 1;
        drop(here);
        self.counted.open();
        Some(Visit { visitors: self.clone(), client })
    }

    /// A connection ended before it began.
    fn count_failed_start(&self, error: &std::io::Error) {
        use std::io::ErrorKind::{InvalidData, TimedOut};
        let is_tls = || error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
        match error.kind() {
            InvalidData if !is_tls() => self.counted.refuse(Refused::PlainText),
            InvalidData | TimedOut => self.counted.refuse(Refused::TlsHandshake),
            // The client left, or the service stops.
            _ => {}
        }
    }

    /// All connections are in use, and the next client waits.
    pub(super) fn log_full(&self, most: usize) {
        if let Some(left_out) = self.logged.full.turn() {
            tracing::warn!("all {most} connections are taken, so new ones wait; raise listen.connections{left_out}");
        }
    }

    /// Accepting connections fails.
    pub(super) fn log_trouble(&self, error: &std::io::Error) {
        if let Some(left_out) = self.logged.trouble.turn() {
            tracing::warn!("cannot accept connections right now: {error}{left_out}");
        }
    }

    /// A client opens streams only to reset them, and its connection was closed for that.
    pub(super) fn log_reset(&self, address: IpAddr) {
        self.counted.refuse(Refused::StreamResets);
        if let Some(left_out) = self.logged.reset.turn() {
            tracing::warn!("{address} keeps resetting HTTP/2 streams, so its connection was closed{left_out}");
        }
    }

    fn here(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    visitors: Arc<Visitors>,
    client: IpAddr,
}

impl Visit {
    /// The connection ended before it began.
    pub(super) fn count_failed_start(&self, error: &std::io::Error) {
        self.visitors.count_failed_start(error);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.visitors.counted.close();
        let mut here = self.visitors.here();
        if let Some(own) = here.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                here.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let visitors = Arc::new(Visitors::default());
        let (eve, ann): (IpAddr, IpAddr) = ([203, 0, 113, 6].into(), [198, 51, 100, 7].into());
        let mut held: Vec<Visit> = (0..3).map(|_| visitors.admit(eve, 3).expect("a place")).collect();
        assert!(visitors.admit(eve, 3).is_none() && visitors.admit(ann, 3).is_some());
        held.pop();
        assert!(visitors.admit(eve, 3).is_some());
        drop(held);
        assert!(visitors.here().is_empty(), "closed connections are not remembered");
    }

    #[test]
    fn a_trusted_proxy_brings_as_many_as_it_likes() {
        let trusted = Identity::new().trust(["10.0.0.0/8".parse().expect("a network")]);
        let visitors = Visitors::new(Arc::default(), trusted, Arc::default());
        let many: Vec<Option<Visit>> = (0..10).map(|_| visitors.admit([10, 0, 0, 1].into(), 1)).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
