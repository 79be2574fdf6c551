//! Every store: in memory, and in real Redis and Valkey servers with the feature `redis`, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod every_store;
#[cfg(feature = "redis")]
mod redis_ahead;
#[cfg(feature = "redis")]
mod redis_deployments;
#[cfg(feature = "redis")]
mod redis_earlier;
#[cfg(feature = "redis")]
mod redis_full;
#[cfg(feature = "redis")]
mod redis_live;
#[cfg(feature = "redis")]
mod redis_owners;
#[cfg(feature = "redis")]
mod redis_store;
mod reservations;
mod store_conformance;
