//! TLS, for whoever comes to a front and for where the proxy goes: 1.2 and 1.3, with the provider that the Redis store
//! uses too.
//!
//! Certificates are read when the service starts and again when it is told to. What cannot be used is refused with the
//! file and the reason, and what was in use stays.

mod acceptor;
mod certificate;
mod client;
mod connector;
mod pem;
mod provider;
mod renewable;
mod server;
mod stream;

pub(crate) use acceptor::{Acceptor, CLIENT_ATTRIBUTE, Protocol, client_name};
pub(crate) use client::{UpstreamFiles, caller_config, upstream_config};
pub(crate) use connector::Connector;
pub(crate) use renewable::{Renew, Renewable};
pub(crate) use server::server_config;
pub(crate) use stream::Stream;
