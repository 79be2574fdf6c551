//! Telling a process from the one that it was forked from, at the price of reading a number.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

/// Which process this is, counted from the first of its line. Two of a line never have the same number.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Relaxed)
}

/// From here on forks are counted. What is cheap enough to be called by everything that is made.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handler only adds to an atomic number, which is allowed between fork and exec.
        unsafe {
            libc::pthread_atfork(None, None, Some(count));
        }
    });
}

#[cfg(unix)]
extern "C" fn count() {
    GENERATION.fetch_add(1, Relaxed);
}
