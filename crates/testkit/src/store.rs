//! Redis and Valkey: one server, a cluster, a primary behind Sentinel, or one with TLS only.
//!
//! `TOLLKEEPER_REDIS_SERVER`, `TOLLKEEPER_REDIS_62_SERVER` and `TOLLKEEPER_VALKEY_SERVER` name other binaries than
//! those that `./run setup` installs.

mod cluster;
mod sentinel;
mod server;
mod tls;

pub use cluster::Cluster;
pub use sentinel::Sentinels;
pub use server::{Kind, Server};
pub use tls::{ClientCertificates, TlsServer};
