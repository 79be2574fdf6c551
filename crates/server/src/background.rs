//! Tasks that run beside the requests.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// Runs `work` in the background.
///
/// Boxed: tokio's tasks are compiled again for every type of future, and what starts once needs no type of its own.
pub(crate) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
    tokio::spawn(work)
}
