//! Tests without a server: the simple API and the tower layer, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod each;
mod keyed;
mod lacking;
#[cfg(feature = "tower")]
mod tower_grpc;
#[cfg(feature = "tower")]
mod tower_http;
