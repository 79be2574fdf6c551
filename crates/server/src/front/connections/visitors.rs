//! Counts connections and requests in flight, in total and per address.
//!
//! An address that has reached its limit gets no more, so that no client can use up all connections. One may have as many
//! requests in flight as connections: HTTP/2 carries hundreds on each, and every one takes memory and, in the proxy, a
//! connection to the upstream.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper::http::Identity;
use tollkeeper::sparing::Sparing;

use crate::metrics::{Connections, Refused};
use crate::network;

/// How many connections a listener takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MostConnections {
    pub(crate) all: usize,
    pub(crate) per_address: usize,
}

/// The connections of one front.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    /// Their counters.
    counted: Arc<Connections>,
    /// Trusted proxies carry many clients, so they have no limit of their own.
    trusted: Identity,
    /// Set while the service drains before stopping.
    draining: Arc<AtomicBool>,
    here: Mutex<HashMap<IpAddr, Guest>>,
    /// The load of all clients.
    load: Load,
    logged: Logged,
}

/// One address.
#[derive(Debug, Default)]
struct Guest {
    connections: usize,
    load: Arc<Load>,
}

/// What clients make the service keep.
#[derive(Debug, Default)]
struct Load {
    /// Requests in flight.
    requests: AtomicUsize,
    /// Bytes of large answers that were not read yet.
    bytes: AtomicUsize,
}

/// Log lines that are rate-limited, however often they occur.
#[derive(Debug)]
struct Logged {
    crowd: Sparing,
    requests: Sparing,
    full: Sparing,
    trouble: Sparing,
    reset: Sparing,
}

impl Default for Logged {
    fn default() -> Logged {
        const PAUSE: Duration = Duration::from_secs(30);
        let sparing = || Sparing::every(PAUSE);
        Logged { crowd: sparing(), requests: sparing(), full: sparing(), trouble: sparing(), reset: sparing() }
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
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr, most: MostConnections) -> Option<Visit> {
        let client = network::of_client(address);
        let is_trusted = self.trusted.trusts(address);
        let MostConnections { all, per_address: most } = most;
        let mut here = self.here();
        let own = here.entry(client).or_default();
        if own.connections >= most && !is_trusted {
            drop(here);
            self.counted.refuse(Refused::PerAddress);
            if let Some(left_out) = self.logged.crowd.turn() {
                tracing::warn!(
                    "{client} has {most} connections, the most that one address may have, so further ones are closed; \
                     raise listen.connections_per_address, or add it to trusted_proxies if it is your proxy{left_out}"
                );
            }
            return None;
        }
        own.connections += 1;
        let own = own.load.clone();
        drop(here);
        self.counted.open();
        let most = if is_trusted { all } else { most };
        Some(Visit { requests: Requests(Arc::new(Share { visitors: self.clone(), client, own, most, all })) })
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

    fn here(&self) -> MutexGuard<'_, HashMap<IpAddr, Guest>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    requests: Requests,
}

impl Visit {
    /// The connection ended before it began.
    pub(super) fn count_failed_start(&self, error: &std::io::Error) {
        self.requests.0.visitors.count_failed_start(error);
    }

    /// Where its requests are counted.
    pub(super) fn requests(&self) -> Requests {
        self.requests.clone()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Share { visitors, client, .. } = &*self.requests.0;
        visitors.counted.close();
        let mut here = visitors.here();
        if let Some(own) = here.get_mut(client) {
            own.connections -= 1;
            if own.connections == 0 {
                here.remove(client);
            }
        }
    }
}

/// The requests in flight of one client, on all of its connections. Shared within a connection, so that a request on it counts
/// nothing else that all threads write to.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Arc<Share>);

#[derive(Debug)]
struct Share {
    visitors: Arc<Visitors>,
    client: IpAddr,
    own: Arc<Load>,
    /// The most of this client, and of all.
    most: usize,
    all: usize,
}

/// How many bytes of large answers may wait to be read by one client, and by all.
const UNREAD: usize = 16 << 20;
const ALL_UNREAD: usize = 64 << 20;

impl Requests {
    /// One more, unless this client, or all clients together, have as many as they may.
    pub(crate) fn begin(&self) -> Option<InFlight> {
        let Share { visitors, client, own, most, all } = &*self.0;
        // Counted before it is compared, so that requests at the same moment do not all fit.
        let begun = InFlight(self.clone());
        let (own, in_total) = (own.requests.fetch_add(1, Relaxed), visitors.load.requests.fetch_add(1, Relaxed));
        if own < *most && in_total < *all {
            return Some(begun);
        }
        if let Some(left_out) = visitors.logged.requests.turn() {
            tracing::warn!(
                "overloaded: {client} has {own} requests in flight, of {in_total} in total, so further ones are shed; \
                 at most {most} may come from one address and {all} in total, as for connections: raise \
                 listen.connections_per_address or listen.connections{left_out}"
            );
        }
        None
    }

    /// Room for a large answer, unless too much waits to be read by this client or by all.
    pub(crate) fn hold(&self, bytes: usize) -> Option<HeldBytes> {
        let held = HeldBytes { requests: self.clone(), bytes };
        let Share { visitors, own, most, all, .. } = &*self.0;
        let own = own.bytes.fetch_add(bytes, Relaxed) + bytes;
        let in_total = visitors.load.bytes.fetch_add(bytes, Relaxed) + bytes;
        // A trusted proxy may have all connections.
        let most = if most == all { ALL_UNREAD } else { UNREAD };
        (own <= most && in_total <= ALL_UNREAD).then_some(held)
    }
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Requests);

impl Drop for InFlight {
    fn drop(&mut self) {
        let Share { visitors, own, .. } = &*self.0.0;
        own.requests.fetch_sub(1, Relaxed);
        visitors.load.requests.fetch_sub(1, Relaxed);
    }
}

/// Room for a large answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    requests: Requests,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let Share { visitors, own, .. } = &*self.requests.0;
        own.bytes.fetch_sub(self.bytes, Relaxed);
        visitors.load.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let visitors = Arc::new(Visitors::default());
        let (eve, ann): (IpAddr, IpAddr) = ([203, 0, 113, 6].into(), [198, 51, 100, 7].into());
        let most = MostConnections { all: 10, per_address: 3 };
        let mut held: Vec<Visit> = (0..3).map(|_| visitors.admit(eve, most).expect("a place")).collect();
        assert!(visitors.admit(eve, most).is_none() && visitors.admit(ann, most).is_some());
        held.pop();
        assert!(visitors.admit(eve, most).is_some());
        drop(held);
        assert!(visitors.here().is_empty(), "closed connections are not remembered");
    }

    #[test]
    fn a_trusted_proxy_brings_as_many_as_it_likes() {
        let trusted = Identity::new().trust(["10.0.0.0/8".parse().expect("a network")]);
        let visitors = Visitors::new(Arc::default(), trusted, Arc::default());
        let most = MostConnections { all: 12, per_address: 1 };
        let many: Vec<Option<Visit>> = (0..10).map(|_| visitors.admit([10, 0, 0, 1].into(), most)).collect();
        assert!(many.iter().all(Option::is_some));
        let requests = many[0].as_ref().expect("a place").requests();
        let begun: Vec<InFlight> = std::iter::from_fn(|| requests.begin()).collect();
        assert_eq!(begun.len(), 12);
    }

    #[test]
    fn an_address_has_as_many_requests_in_flight_as_connections() {
        let visitors = Arc::new(Visitors::default());
        let most = MostConnections { all: 5, per_address: 3 };
        let visits = [6, 6, 7, 8].map(|host| visitors.admit([203, 0, 113, host].into(), most).expect("a place"));
        let [one, other, ann, bob] = visits.each_ref().map(Visit::requests);
        let eve: Vec<InFlight> = [&one, &other, &one].into_iter().filter_map(Requests::begin).collect();
        assert_eq!(eve.len(), 3);
        assert!(one.begin().is_none() && other.begin().is_none(), "on all of its connections together");
        let rest = (ann.begin().expect("room"), bob.begin().expect("room"));
        assert!(ann.begin().is_none(), "all clients together have as many as they may");
        drop(eve);
        assert!(ann.begin().is_some() && one.begin().is_some());
        drop((rest, visits));
        assert!(visitors.here().is_empty() && visitors.load.requests.load(Relaxed) == 0);
    }

    #[test]
    fn what_clients_do_not_read_is_bounded() {
        let visitors = Arc::new(Visitors::default());
        let most = MostConnections { all: 9, per_address: 1 };
        let visits = [1, 2, 3, 4, 5].map(|host| visitors.admit([203, 0, 113, host].into(), most).expect("a place"));
        let held: Vec<HeldBytes> =
            visits.iter().map(|visit| visit.requests().hold(UNREAD)).map_while(|held| held).collect();
        assert_eq!(held.len(), ALL_UNREAD / UNREAD, "the last one finds no room");
        assert!(visits[0].requests().hold(1).is_none());
        drop(held);
        assert!(visits[0].requests().hold(UNREAD).is_some() && visits[0].requests().hold(UNREAD + 1).is_none());
        assert_eq!(visitors.load.bytes.load(Relaxed), 0);
    }
}
