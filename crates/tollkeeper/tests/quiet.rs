//! Tests that measure their own process or the machine, run one at a time.

#![allow(clippy::unwrap_used, missing_docs)]

mod flood;
#[cfg(all(feature = "redis", unix))]
mod processes;
#[cfg(feature = "redis")]
mod redis_overload;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hold it while measuring: tests that run at the same time would disturb the result.
fn alone() -> MutexGuard<'static, ()> {
    static QUIET: Mutex<()> = Mutex::new(());
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}
