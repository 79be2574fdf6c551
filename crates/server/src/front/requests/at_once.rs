//! Requests on HTTP/2 that are answered by the task of their connection, without one for each.
//!
//! hyper hands each of them to an executor, which usually makes it a task: it is allocated, scheduled, polled, and wakes its
//! connection, which then sends the answer. A request that waits for nothing is answered here while its connection reads it, and the
//! connection goes on to send the answer. One that has to wait, for a store or for a body, wakes its connection, which polls the
//! request and then sends the answer: answers of a store that arrive together cost one poll of their connection.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;

thread_local! {
    /// The connection whose requests this thread is answering, by the address of its turn.
    static ANSWERING: Cell<usize> = const { Cell::new(0) };
}

type Answering = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of one connection.
#[derive(Clone)]
pub(crate) struct AtOnce(Arc<Turn>);

struct Turn {
    /// How many requests that have just arrived, and how many that waited, are answered before other connections have their turn.
    most: u32,
    /// How many more.
    left: AtomicU32,
    /// Requests that have begun to wait since the connection was last polled. Those that waited before are kept by the
    /// connection's task alone: a request may refer to this.
    began_to_wait: Mutex<Vec<Answering>>,
}

impl AtOnce {
    pub(super) fn new(most: u32) -> AtOnce {
        AtOnce(Arc::new(Turn { most, left: AtomicU32::new(0), began_to_wait: Mutex::default() }))
    }

    /// Serves the connection that has this executor.
    pub(super) async fn serve<C: Future>(self, connection: C) -> C::Output {
        let (mut connection, mut known) = (pin!(connection), None::<(Waker, Waker)>);
        let mut waiting = Waiting::default();
        let _begun = Begun(&self.0);
        poll_fn(|cx| {
            // Only while it is polled: then it is polled again after each request.
            self.0.left.store(self.0.most, Relaxed);
            // Made once: a connection is one task.
            let known = match &mut known {
                Some(known) if known.0.will_wake(cx.waker()) => known,
                known => known.insert((cx.waker().clone(), self.waker(cx.waker().clone()))),
            };
            // First, so that the connection sends their answers.
            self.0.answering(|| waiting.poll(self.0.most, cx));
            let polled = connection.as_mut().poll(&mut Context::from_waker(&known.1));
            self.0.left.store(0, Relaxed);
            waiting.extend(self.0.take_begun());
            // They are to wake this task. An answer that has come meanwhile wakes it too, because the connection was polled already.
            waiting.poll(self.0.most, cx);
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
        let turn = &self.0;
        match turn.left.load(Relaxed) {
            0 => return drop(tokio::spawn(request)),
            some => turn.left.store(some - 1, Relaxed),
        }
        let mut request = Box::pin(request);
        // As in a task, a panic ends the request alone. The waker is none, because what waits is polled again.
        let answered = turn.answering(|| {
            catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut Context::from_waker(Waker::noop()))))
        });
        if matches!(answered, Ok(Poll::Pending)) {
            turn.began_to_wait.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        }
    }
}

impl Turn {
    fn address(self: &Arc<Turn>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Runs what answers requests of this connection.
    fn answering<T>(self: &Arc<Turn>, answer: impl FnOnce() -> T) -> T {
        let before = ANSWERING.replace(self.address());
        let answered = answer();
        ANSWERING.set(before);
        answered
    }

    fn take_begun(&self) -> Vec<Answering> {
        std::mem::take(&mut *self.began_to_wait.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Drops the requests that have just begun to wait if their connection panics: they refer to its turn, which has them.
struct Begun<'t>(&'t Turn);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        drop(self.0.take_begun());
    }
}

/// The requests of a connection that wait.
#[derive(Default)]
struct Waiting(FuturesUnordered<Answering>);

impl Waiting {
    fn extend(&mut self, begun: Vec<Answering>) {
        if self.0.is_empty() && !begun.is_empty() {
            // One that waits for ever: the set asks for its task to be polled again whenever it has polled all that it has.
            self.0.push(Box::pin(pending()));
        }
        self.0.extend(begun);
    }

    /// Polls the requests that were woken, until so many are answered that others have their turn. A panic ends one of
    /// them, which drops it, and leaves the others alone.
    fn poll(&mut self, most: u32, cx: &mut Context<'_>) {
        if self.0.is_empty() {
            return;
        }
        for _ in 0..most {
            match catch_unwind(AssertUnwindSafe(|| self.0.poll_next_unpin(cx))) {
                Ok(Poll::Pending | Poll::Ready(None)) => return,
                Ok(Poll::Ready(Some(()))) | Err(_) => {}
            }
        }
        cx.waker().wake_by_ref();
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

    use futures_util::FutureExt as _;
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

    /// Each request that waited for Redis was a task, whose end woke its connection: twice the polls, and the calls to Redis had
    /// fewer requests because their answers were under way for longer.
    #[tokio::test]
    async fn requests_that_waited_are_answered_in_the_poll_of_their_connection() {
        let (executor, go_on, answered) = (AtOnce::new(16), Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let mut seen = Vec::new();
        let connection = poll_fn(|cx| {
            if seen.is_empty() {
                for _ in 0..3 {
                    let (go_on, answered, waker) = (go_on.clone(), answered.clone(), cx.waker().clone());
                    executor.execute(async move {
                        go_on.notified().await;
                        answered.fetch_add(1, Relaxed);
                        waker.wake();
                    });
                }
            }
            seen.push(answered.load(Relaxed));
            if seen.ends_with(&[3]) { Poll::Ready(()) } else { Poll::Pending }
        });
        let serving = executor.clone().serve(connection);
        let later = async {
            yield_now().await;
            go_on.notify_waiters();
        };
        timeout(SOON, async { tokio::join!(serving, later) }).await.expect("it is woken");
        assert_eq!(seen, [0, 3], "one poll has all answers");
    }

    #[tokio::test]
    async fn others_have_their_turn_after_some_requests_that_waited() {
        let (executor, go_on, answered) = (AtOnce::new(3), Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let mut seen = Vec::new();
        let connection = poll_fn(|cx| {
            if seen.len() < 2 {
                for _ in 0..3 {
                    let (go_on, answered) = (go_on.clone(), answered.clone());
                    executor.execute(async move {
                        go_on.notified().await;
                        answered.fetch_add(1, Relaxed);
                    });
                }
                cx.waker().wake_by_ref();
            }
            seen.push(answered.load(Relaxed));
            if seen.ends_with(&[6]) { Poll::Ready(()) } else { Poll::Pending }
        });
        let serving = executor.clone().serve(connection);
        let later = async {
            for _ in 0..3 {
                yield_now().await;
            }
            go_on.notify_waiters();
        };
        timeout(SOON, async { tokio::join!(serving, later) }).await.expect("it is woken");
        assert!(seen.contains(&3), "{seen:?}");
    }

    #[tokio::test]
    async fn a_panic_ends_the_request_that_waited_alone() {
        let (executor, answered) = (AtOnce::new(16), Arc::new(AtomicUsize::new(0)));
        let mut polls = 0;
        let connection = poll_fn(|_| {
            polls += 1;
            if polls == 1 {
                executor.execute(async {
                    yield_now().await;
                    panic!("on purpose");
                });
                let answered = answered.clone();
                executor.execute(async move {
                    yield_now().await;
                    yield_now().await;
                    answered.fetch_add(1, Relaxed);
                });
            }
            if answered.load(Relaxed) == 1 { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(SOON, executor.clone().serve(connection)).await.expect("the other one is answered");
    }

    #[tokio::test]
    async fn a_request_that_waits_wakes_its_connection() {
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

    /// The connection was polled once more for every request that began to wait.
    #[test]
    fn a_request_that_begins_to_wait_does_not_wake_its_connection() {
        let (executor, woken) = (AtOnce::new(16), Arc::new(Woken::default()));
        let connection = poll_fn(|_| {
            executor.execute(pending());
            Poll::<()>::Pending
        });
        let mut serving = pin!(executor.clone().serve(connection));
        let waker = Waker::from(woken.clone());
        let mut poll = || {
            assert!(serving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            woken.0.load(Relaxed)
        };
        let first = poll();
        assert_eq!((poll(), poll()), (first, first));
    }

    /// Requests that had begun to wait were never dropped after a panic of their connection, and counted as in flight for ever.
    #[tokio::test]
    async fn requests_end_with_their_connection() {
        for panics in [false, true] {
            let (executor, request) = (AtOnce::new(16), Arc::new(()));
            let connection = poll_fn(|_| {
                let (own, executor_too) = (request.clone(), executor.clone());
                executor.execute(async move {
                    pending::<()>().await;
                    drop((own, executor_too));
                });
                if panics { panic!("on purpose") } else { Poll::Ready(()) }
            });
            let served = AssertUnwindSafe(executor.clone().serve(connection)).catch_unwind().await;
            assert_eq!(served.is_err(), panics);
            assert_eq!(Arc::strong_count(&request), 1, "panics: {panics}");
        }
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
