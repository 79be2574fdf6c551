//! TLS as clients and upstreams meet it: the real binary, certificates made here, and peers that others wrote (curl, OpenSSL,
//! redis-cli, tonic) beside raw connections.

mod fronts;
mod peer;
mod proxy;
mod refusals;
mod renewal;
mod upstream;
