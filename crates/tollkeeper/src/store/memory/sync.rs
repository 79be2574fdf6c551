//! The lock's primitives. `crates/model` replaces this module with loom's, to run the lock under every interleaving.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU32, fence};
pub(super) use std::thread::yield_now;
