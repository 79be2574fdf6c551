//! The clock of deadlines and durations: the machine's, and in unit tests the runtime's, which can be paused.

#[cfg(not(test))]
pub(super) use std::time::Instant;
#[cfg(test)]
pub(super) use tokio::time::Instant;
