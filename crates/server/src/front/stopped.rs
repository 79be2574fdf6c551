//! Whether the service stops, for a connection that waits for that beside every read.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::sync::watch;

/// Resolves when the service stops, and again whenever it is awaited after that.
pub(super) struct Stopped {
    signal: watch::Receiver<bool>,
    waiting: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Who is woken by it.
    waker: Option<Waker>,
    is_over: bool,
}

impl Stopped {
    pub(super) fn new(signal: watch::Receiver<bool>) -> Stopped {
        let mut stopping = signal.clone();
        let waiting = Box::pin(async move {
            // An error means that it has.
            let _ = stopping.wait_for(|stop| *stop).await;
        });
        Stopped { signal, waiting, waker: None, is_over: false }
    }

    pub(super) fn has_begun(&self) -> bool {
        // Nothing else is ever sent, and an error means that it has.
        !matches!(self.signal.has_changed(), Ok(false))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Nearly always: nothing was sent, and the right task is woken when something is. Polling costs more than to find that
        // out.
        let is_set = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_set && !self.has_begun() {
            return Poll::Pending;
        }
        if !self.is_over {
            self.waker = Some(cx.waker().clone());
            self.is_over = self.waiting.as_mut().poll(cx).is_ready();
        }
        if self.is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) async fn wait(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn it_is_noticed_whenever_it_comes() {
        const SOON: Duration = Duration::from_secs(10);
        let (stop, signal) = watch::channel(false);
        let (mut early, mut late, mut abandoned) =
            (Stopped::new(signal.clone()), Stopped::new(signal.clone()), Stopped::new(signal));
        for _ in 0..3 {
            // Looked at again and again by the same task, as beside every read.
            assert!(timeout(Duration::from_millis(1), early.wait()).await.is_err());
        }
        let waits = tokio::spawn(async move {
            timeout(SOON, early.wait()).await.expect("in another task too");
            timeout(SOON, early.wait()).await.expect("and again");
        });
        tokio::task::yield_now().await;
        stop.send(true).expect("heard");
        waits.await.expect("noticed");
        timeout(SOON, late.wait()).await.expect("by who looks for the first time afterwards");
        drop(stop);
        timeout(SOON, abandoned.wait()).await.expect("when nobody can tell");
    }
}
