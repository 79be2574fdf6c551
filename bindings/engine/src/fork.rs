//! Detects a fork, at the price of one atomic read.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

/// The generation of this process: one more than its parent's. Objects made before a fork carry the parent's number.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Relaxed)
}

/// Starts counting forks. Cheap enough to call whenever an object is created.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only increments an atomic, which is allowed between fork and exec.
        unsafe {
            libc::pthread_atfork(None, None, Some(count));
        }
    });
}

#[cfg(unix)]
extern "C" fn count() {
    GENERATION.fetch_add(1, Relaxed);
}
