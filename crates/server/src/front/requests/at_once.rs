//! Requests on HTTP/2 that are answered at once, without a task for each.
//!
//! hyper hands each of them to an executor, which usually makes it a task: it is allocated, scheduled, polled, and wakes its
//! connection, which then sends the answer. A request that waits for nothing is answered here while its connection reads it, and the
//! connection goes on to send the answer. One that has to wait becomes a task then.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use hyper::rt::Executor;

thread_local! {
    /// The connection whose request this thread is answering, by the address of its turn.
    static ANSWERING: Cell<usize> = const { Cell::new(0) };
}

/// The executor of one connection.
#[derive(Clone, Debug)]
pub(crate) struct AtOnce(Arc<Turn>);

#[derive(Debug)]
struct Turn {
    /// How many requests are answered at once before other connections have their turn.
    most: u32,
    /// How many more.
    left: AtomicU32,
}

impl AtOnce {
    pub(super) fn new(most: u32) -> AtOnce {
        AtOnce(Arc::new(Turn { most, left: AtomicU32::new(0) }))
    }

    /// Serves the connection that has this executor.
    pub(super) async fn serve<C: Future>(self, connection: C) -> C::Output {
        let (mut connection, mut known) = (pin!(connection), None::<(Waker, Waker)>);
        poll_fn(|cx| {
            // Only while it is polled: then it is polled again after each request.
            self.0.left.store(self.0.most, Relaxed);
            // Made once: a connection is one task.
            let known = match &mut known {
                Some(known) if known.0.will_wake(cx.waker()) => known,
                known => known.insert((cx.waker().clone(), self.waker(cx.waker().clone()))),
            };
            let polled = connection.as_mut().poll(&mut Context::from_waker(&known.1));
            self.0.left.store(0, Relaxed);
            polled
        })
        .await
    }

    fn waker(&self, task: Waker) -> Waker {
        Waker::from(Arc::new(Unless { turn: self.0.clone(), task }))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for AtOnce {
    fn execute(&self, request: F) {
        let Turn { left, .. } = &*self.0;
        match left.load(Relaxed) {
            0 => return drop(tokio::spawn(request)),
            some => left.store(some - 1, Relaxed),
        }
        let mut request = Box::pin(request);
        let before = ANSWERING.replace(self.0.address());
        // As in a task, a panic ends the request alone. The waker is none, because a task polls again what waits.
        let answered =
            catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        ANSWERING.set(before);
        if matches!(answered, Ok(Poll::Pending)) {
            tokio::spawn(request);
        }
    }
}

impl Turn {
    fn address(self: &Arc<Turn>) -> usize {
        Arc::as_ptr(self).addr()
    }
}

/// Wakes a connection, unless one of its requests that is answered at once asks for it: hyper polls the connection anyway once the
/// request is answered. Other threads never ask for that reason.
struct Unless {
    turn: Arc<Turn>,
    task: Waker,
}

impl Wake for Unless {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if ANSWERING.get() != self.turn.address() {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// A connection with many requests at once kept its thread until all of them were answered.
    #[tokio::test]
    async fn others_have_their_turn_after_some_requests() {
        let (executor, answered) = (AtOnce::new(3), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let answered = answered.clone();
            executor.execute(async move {
                answered.fetch_add(1, Relaxed);
            });
        };
        ask();
        assert_eq!(answered.load(Relaxed), 0, "it is not polled, so it cannot send an answer");
        yield_now().await;
        let mut polls = 0;
        let connection = poll_fn(|cx| {
            polls += 1;
            (0..5).for_each(|_| ask());
            assert_eq!(answered.load(Relaxed), 1 + 5 * (polls - 1) + 3);
            cx.waker().wake_by_ref();
            if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
        });
        executor.clone().serve(connection).await;
        yield_now().await;
        assert_eq!(answered.load(Relaxed), 11);
    }

    #[tokio::test]
    async fn a_request_that_waits_is_a_task_and_wakes_its_connection() {
        let (executor, go_on) = (AtOnce::new(16), Arc::new(Notify::new()));
        let (waiting, mut polls) = (go_on.clone(), 0);
        let connection = poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                let (waiting, waker) = (waiting.clone(), cx.waker().clone());
                executor.execute(async move {
                    waiting.notified().await;
                    waker.wake();
                });
            }
            if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
        });
        let serving = executor.clone().serve(connection);
        let later = async {
            yield_now().await;
            go_on.notify_one();
        };
        timeout(SOON, async { tokio::join!(serving, later) }).await.expect("it is woken");
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_request_that_is_answered_at_once_does_not_wake_its_connection() {
        let (executor, woken, mut known) = (AtOnce::new(16), Arc::new(Woken::default()), None);
        {
            let connection = poll_fn(|cx| {
                let waker = known.insert(cx.waker().clone()).clone();
                executor.execute(async move { waker.wake() });
                Poll::<()>::Pending
            });
            let mut serving = pin!(executor.clone().serve(connection));
            let waker = Waker::from(woken.clone());
            assert!(serving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(woken.0.load(Relaxed), 0, "hyper polls it anyway");
        known.expect("a waker").wake();
        assert_eq!(woken.0.load(Relaxed), 1, "all others wake it");
    }

    /// Where each request was a task, a bug in one of them left the others of its connection alone.
    #[tokio::test]
    async fn a_panic_ends_its_request_alone() {
        let (executor, answered) = (AtOnce::new(16), Arc::new(AtomicUsize::new(0)));
        let connection = poll_fn(|_| {
            executor.execute(async { panic!("on purpose") });
            let answered = answered.clone();
            executor.execute(async move {
                answered.fetch_add(1, Relaxed);
            });
            Poll::Ready(())
        });
        executor.clone().serve(connection).await;
        assert_eq!(answered.load(Relaxed), 1);
    }
}
