//! TLS 1.2 and 1.3, for clients of the fronts and for the proxy's upstream, with the same provider as the Redis
//! store.
//!
//! Certificates are read when the service starts and again on SIGHUP. Files that cannot be used are refused with a
//! reason, and the certificates in use stay.

mod acceptor;
mod certificate;
mod client;
mod connector;
mod pem;
mod provider;
mod renewable;
mod server;
mod stream;

pub use acceptor::{Acceptor, CLIENT_ATTRIBUTE, Protocol, client_name};
pub use client::{CallerFiles, UpstreamFiles, caller_config, upstream_config};
pub use connector::Connector;
pub use renewable::{Renew, Renewable};
pub use server::server_config;
pub use stream::Stream;
