//! The core's tests, in one binary: `cargo test -p tollkeeper-core --test core laws` runs those of `laws.rs`.

#![allow(clippy::unwrap_used, missing_docs)]

mod changes;
mod headers;
mod laws;
mod leases;
mod policy;
mod refunds;
mod renewals;
mod settling;
mod vectors;
