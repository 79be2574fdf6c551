//! TLS as clients and upstreams meet it: the real binary, certificates made here, and peers that others wrote (curl, OpenSSL,
//! redis-cli, tonic) beside raw connections.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "tls/authority.rs"]
mod authority;
mod envoy_client;
#[path = "tls/fronts.rs"]
mod fronts;
#[path = "tls/peer.rs"]
mod peer;
#[path = "tls/proxy.rs"]
mod proxy;
#[path = "tls/refusals.rs"]
mod refusals;
#[path = "tls/renewal.rs"]
mod renewal;
mod running;
#[path = "tls/upstream.rs"]
mod upstream;
#[allow(dead_code)] // Of the proxy's tests, whose upstreams are put behind TLS here.
#[path = "proxy/world.rs"]
mod world;
