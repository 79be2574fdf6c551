//! TLS as clients and upstreams see it: the real binary, certificates made here, third-party peers (curl, OpenSSL,
//! redis-cli, tonic) and raw connections.

mod fronts;
mod peer;
mod proxy;
mod refusals;
mod renewal;
mod upstream;
