//! An auditor of rate limits that knows nothing of this library.
#![cfg(unix)]

#[path = "processes/auditor.rs"]
mod auditor;
