//! The memory store's lock, compiled against loom instead of the standard library.
//!
//! loom runs a test under every interleaving of its threads, and under every value that a relaxed load may return by the C11
//! memory model. It needs its own atomics, so the file is included here, and its `sync` module is replaced.

#[path = "../../tollkeeper/src/store/memory/lock.rs"]
mod lock;

mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicU32, fence};
    pub(super) use loom::thread::yield_now;
}

pub use lock::{Guard, Lock, Moment};
