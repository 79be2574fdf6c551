//! The runtime in which callers wait for their answers.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

/// The callers' runtime, if it is known.
#[derive(Debug, Default)]
pub(super) struct Callers {
    runtime: Option<Handle>,
    /// At most one at a time, since a runtime that nobody runs would collect them.
    marker: Option<JoinHandle<()>>,
}

impl Callers {
    /// Their runtime may be busy or stopped.
    const MOST: Duration = Duration::from_millis(1);

    /// The runtime of the task that calls this.
    pub(super) fn here() -> Callers {
        Callers { runtime: Handle::try_current().ok(), marker: None }
    }

    /// Waits until callers that were just answered have run, for a moment at most.
    ///
    /// A marker task is queued behind them. It yields once, because their runtime may have several threads.
    pub(super) async fn run(&mut self) {
        let Some(runtime) = &self.runtime else { return };
        let marker = self.marker.get_or_insert_with(|| runtime.spawn(yield_now()));
        // An error means that the runtime is gone.
        if timeout(Callers::MOST, marker).await.is_ok() {
            self.marker = None;
        }
    }
}
