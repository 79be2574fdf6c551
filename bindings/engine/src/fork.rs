//! Detects a fork, at the price of one atomic read.
//!
//! A forked process has a copy of every lock, and of the threads only the one that forked: a lock that another thread held stays
//! locked there forever. Hosts fork between their own calls, so what remains are the threads of this library, and hosts' threads
//! that wait without the host's global lock. What those change and a child needs, they change in [`still`], which a fork waits for.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();
static STILL: Mutex<()> = Mutex::new(());

/// The generation of this process: one more than its parent's. Objects made before a fork carry the parent's number. Forks are counted
/// from when the first engine is made.
pub fn generation() -> u64 {
    GENERATION.load(Relaxed)
}

/// Changes something while no thread forks. Not to be nested.
pub(crate) fn still<T>(change: impl FnOnce() -> T) -> T {
    let _still = STILL.lock().unwrap_or_else(PoisonError::into_inner);
    change()
}

/// Starts counting forks. Cheap enough to call whenever an object is created.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handlers take a lock before the fork, which no handler of ours needs meanwhile, and release it on both sides.
        unsafe {
            libc::pthread_atfork(Some(before), Some(after), Some(after_in_child));
        }
    });
}

thread_local! {
    /// The lock, in the thread that forks.
    static FORKING: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

#[cfg(unix)]
extern "C" fn before() {
    let still = STILL.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads that end cannot keep it.
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(still));
}

#[cfg(unix)]
extern "C" fn after() {
    let _ = FORKING.try_with(|forking| drop(forking.borrow_mut().take()));
}

#[cfg(unix)]
extern "C" fn after_in_child() {
    GENERATION.fetch_add(1, Relaxed);
    after();
}
