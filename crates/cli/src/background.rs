//! Tasks that run beside the requests, and commands that wait for an answer.

use std::io;
use std::pin::Pin;

use tokio::task::JoinHandle;

/// Runs `work` in the background.
///
/// Boxed: tokio's tasks are compiled again for every type of future, and what starts once needs no type of its own.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let work: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(work);
    tokio::spawn(work)
}

/// Waits for `work` on this thread. Boxed for the same reason.
pub fn block_on<'w, T>(work: impl Future<Output = T> + 'w) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work: Pin<Box<dyn Future<Output = T> + 'w>> = Box::pin(work);
    Ok(runtime.block_on(work))
}
