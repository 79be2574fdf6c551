//! The hard caps of a table: the number of keys, and the bytes of logs.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Current usage. On cache lines of its own: it changes with every new key, its neighbours never.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Room {
    keys: AtomicUsize,
    pub(super) max_keys: usize,
    log_bytes: AtomicUsize,
    pub(super) max_log_bytes: usize,
}

impl Room {
    pub(super) fn new(max_keys: usize, max_log_bytes: usize) -> Room {
        Room { keys: AtomicUsize::new(0), max_keys, log_bytes: AtomicUsize::new(0), max_log_bytes }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    pub(super) fn fits(&self, new: usize) -> bool {
        self.keys() + new <= self.max_keys
    }

    /// Reserves room for one more key; false when there is none.
    pub(super) fn take_key(&self) -> bool {
        let one_more = |keys| (keys < self.max_keys).then_some(keys + 1);
        self.keys.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    pub(super) fn return_key(&self) {
        self.keys.fetch_sub(1, Relaxed);
    }

    pub(super) fn log_bytes(&self) -> usize {
        self.log_bytes.load(Relaxed)
    }

    /// Reserves bytes for logs; false when there are not enough left.
    pub(super) fn take_bytes(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max_log_bytes);
        bytes == 0 || self.log_bytes.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    pub(super) fn return_bytes(&self, bytes: usize) {
        if bytes > 0 {
            self.log_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// A log changed its size, within what was reserved.
    pub(super) fn resize(&self, before: usize, after: usize) {
        self.log_bytes.fetch_add(after, Relaxed);
        self.log_bytes.fetch_sub(before, Relaxed);
    }
}
