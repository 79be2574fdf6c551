//! The callers that wait for answers, and how those reach them.
//!
//! Answers arrive in batches, on the thread that makes the calls. To wake every caller from there would interrupt the callers'
//! threads once for each. So one task takes all answers to a runtime, and wakes the callers there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};
use tollkeeper_core::Timestamp;

use super::batch::RequestAnswer;
use super::instant::Instant;
use super::node::Refusal;

/// The answer to a request, and what is needed to continue by this process's clock.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) answer: RequestAnswer,
    /// When it was decided, by the server's clock,
    pub(super) now: Timestamp,
    /// which was not before this moment.
    pub(super) asked_at: Instant,
}

/// Where a caller waits.
pub(super) type Wait = oneshot::Receiver<Result<Answered, Refusal>>;

/// A caller that waits for an answer.
#[derive(Debug)]
pub(super) struct Waiter {
    answer: oneshot::Sender<Result<Answered, Refusal>>,
    /// Where it waits, if that is a task: its runtime is running, whereas others may not be.
    runtime: Option<Handle>,
}

impl Waiter {
    /// The calling task.
    pub(super) fn here() -> (Waiter, Wait) {
        let (answer, wait) = oneshot::channel();
        let runtime = tokio::task::try_id().and_then(|_| Handle::try_current().ok());
        (Waiter { answer, runtime }, wait)
    }

    /// Whether it has given up.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}

/// An answer on its way.
type Letter = (oneshot::Sender<Result<Answered, Refusal>>, Result<Answered, Refusal>);

/// Answers on their way to callers in other runtimes.
#[derive(Debug, Default)]
pub(super) struct Deliveries(Vec<Delivery>);

/// Answers for one runtime, which a task there hands out.
#[derive(Debug)]
struct Delivery {
    since: Instant,
    letters: Arc<Mutex<Vec<Letter>>>,
    task: JoinHandle<()>,
}

impl Deliveries {
    /// How long callers are waited for: their runtime may be busy or stopped.
    const MOST: Duration = Duration::from_millis(1);
    /// When answers are handed out from here after all: a caller may block the thread that should do it.
    const LATE: Duration = Duration::from_millis(5);

    /// Answers callers.
    pub(super) fn send(&mut self, answers: impl IntoIterator<Item = (Waiter, Result<Answered, Refusal>)>) {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let mut elsewhere: Vec<(Handle, Vec<Letter>)> = Vec::new();
        for (Waiter { answer: waiter, runtime }, answer) in answers {
            let Some(runtime) = runtime.filter(|runtime| Some(runtime.id()) != here) else {
                let _ = waiter.send(answer);
                continue;
            };
            match elsewhere.iter_mut().find(|(known, _)| known.id() == runtime.id()) {
                Some((_, letters)) => letters.push((waiter, answer)),
                None => elsewhere.push((runtime, vec![(waiter, answer)])),
            }
        }
        for (runtime, letters) in elsewhere {
            match letters.len() {
                // Woken as quickly from here.
                1 => hand_out(letters),
                _ => self.0.push(Delivery::start(&runtime, letters)),
            }
        }
    }

    /// Waits until callers that were answered have run, for a moment at most.
    pub(super) async fn settle(&mut self) {
        // For callers in this runtime.
        yield_now().await;
        let all = async {
            for delivery in &mut self.0 {
                // An error means that the runtime is gone. One that was waited for before has ended.
                if !delivery.task.is_finished() {
                    let _ = (&mut delivery.task).await;
                }
            }
        };
        let _ = timeout(Deliveries::MOST, all).await;
    }

    /// Hands out what should have arrived long ago, and forgets what has arrived.
    pub(super) fn recall(&mut self) {
        self.0.retain(|delivery| {
            let mut letters = delivery.letters();
            if delivery.since.elapsed() >= Deliveries::LATE {
                hand_out(std::mem::take(&mut *letters));
            }
            !letters.is_empty()
        });
    }

    /// Waits until everything has arrived.
    pub(super) async fn finish(mut self) {
        self.recall();
        while !self.0.is_empty() {
            sleep(Deliveries::LATE).await;
            self.recall();
        }
    }
}

/// Whoever sent them may end at any time, even by a panic, and nobody would look after them any more.
impl Drop for Deliveries {
    fn drop(&mut self) {
        for delivery in &self.0 {
            hand_out(std::mem::take(&mut *delivery.letters()));
        }
    }
}

impl Delivery {
    fn start(runtime: &Handle, letters: Vec<Letter>) -> Delivery {
        let letters = Arc::new(Mutex::new(letters));
        let taken = letters.clone();
        let task = runtime.spawn(async move {
            let letters = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
            hand_out(letters);
            // The callers run before this goes on; twice, because their runtime may have several threads.
            yield_now().await;
            yield_now().await;
        });
        Delivery { since: Instant::now(), letters, task }
    }

    fn letters(&self) -> MutexGuard<'_, Vec<Letter>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hand_out(letters: Vec<Letter>) {
    for (waiter, answer) in letters {
        // An error means that it has given up.
        let _ = waiter.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::runtime::Builder;

    use super::*;

    /// Two callers in a task that blocks the only thread of its runtime until both are answered, and that thread.
    fn blocked_callers() -> (Vec<Waiter>, std::thread::JoinHandle<()>) {
        let (callers, waiting) = std::sync::mpsc::channel();
        let blocked = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().expect("a runtime");
            let task = runtime.spawn(async move {
                let (waiters, waits): (Vec<Waiter>, Vec<Wait>) = (0..2).map(|_| Waiter::here()).unzip();
                callers.send(waiters).expect("taken");
                // As a future that is run to its end by the thread itself.
                let mut waits: Vec<_> = waits.into_iter().map(Box::pin).collect();
                let mut context = Context::from_waker(Waker::noop());
                while !waits.is_empty() {
                    waits.retain_mut(|wait| wait.as_mut().poll(&mut context).is_pending());
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            runtime.block_on(task).expect("no panic");
        });
        (waiting.recv().expect("two callers"), blocked)
    }

    fn refused(waiters: Vec<Waiter>) -> impl Iterator<Item = (Waiter, Result<Answered, Refusal>)> {
        waiters.into_iter().map(|waiter| (waiter, Err(Refusal::Overloaded)))
    }

    /// Answers of a batch were handed out by a task of the callers' runtime. A caller that blocked its only thread waited
    /// forever.
    #[test]
    fn a_caller_that_blocks_its_thread_is_answered() {
        let (waiters, blocked) = blocked_callers();
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut deliveries = Deliveries::default();
            deliveries.send(refused(waiters));
            deliveries.finish().await;
        });
        blocked.join().expect("both were answered");
    }

    /// The same caller waited forever where the call that failed was made alone, or panicked after it: nobody looked after the answers
    /// to requests that had waited behind it.
    #[test]
    fn it_is_answered_even_if_nobody_looks_after_its_answer() {
        let (waiters, blocked) = blocked_callers();
        let mut deliveries = Deliveries::default();
        deliveries.send(refused(waiters));
        drop(deliveries);
        blocked.join().expect("both were answered");
    }
}
