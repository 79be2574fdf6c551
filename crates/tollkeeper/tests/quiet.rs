//! Tests that measure their own process or the machine, apart from all others and one after the other.

#![allow(clippy::unwrap_used, missing_docs)]

mod flood;
#[cfg(all(feature = "redis", unix))]
mod processes;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// To be held while measuring: the less tests disturb each other, the sharper they see.
fn alone() -> MutexGuard<'static, ()> {
    static QUIET: Mutex<()> = Mutex::new(());
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}
