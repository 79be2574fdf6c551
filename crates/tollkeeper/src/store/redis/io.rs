//! The thread that talks to the servers.
//!
//! In a runtime that is busy with requests, connections are read late and timers fire late, so a deadline there
//! measures the runtime and not the server. Therefore a dedicated thread makes all calls: a reply that it gets late
//! was late.

use std::io;
use std::pin::Pin;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

#[cfg(test)]
use super::link::simulated;
use crate::store::error::StoreError;

/// A runtime with one thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Io {
    handle: Handle,
    /// `None` in a simulation, where all work is done by one thread.
    stop: Option<oneshot::Sender<()>>,
}

impl Io {
    pub(super) fn start() -> io::Result<Io> {
        #[cfg(test)]
        if simulated::network::Network::current().is_some() {
            return Ok(Io { handle: Handle::current(), stop: None });
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new().name("tollkeeper-redis".into()).spawn(move || {
            // Nothing is ever sent: it ends when the sender is dropped.
            let _: Result<(), _> = runtime.block_on(stopped);
        })?;
        Ok(Io { handle, stop: Some(stop) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether this is that thread. Never in a simulation, where it would be true of all work.
    pub(super) fn is_here(&self) -> bool {
        self.stop.is_some() && Handle::try_current().is_ok_and(|runtime| runtime.id() == self.handle.id())
    }

    /// Starts work in the background.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        #[cfg(test)]
        let work = simulated::shuffled(work);
        drop(self.handle.spawn(boxed(work)));
    }

    /// Runs work there, from any thread. It continues if its caller gives up.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        #[cfg(test)]
        let work = simulated::shuffled(work);
        let ended = |_| StoreError::unavailable("the call ended without an answer");
        self.handle.spawn(boxed(work)).await.map_err(ended)
    }
}

/// One type for all work with the same result: the compiler would make a copy of the runtime's task for each of 61 kinds
/// of work, in every crate that makes calls.
fn boxed<T>(work: impl Future<Output = T> + Send + 'static) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(work)
}
