//! Answers that arrive later. The host is woken once for all that are ready, and takes them together.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tollkeeper::Limiter;

use crate::ask::{Reply, Work};
use crate::error::Error;
use crate::io::{Io, Job};

/// Answers for one thread of the host, such as an event loop. `T` identifies whom an answer is for.
pub struct Mailbox<T> {
    answers: Mutex<Vec<(T, Result<Reply, Error>)>>,
    /// Whether the host has been, or is about to be, woken for these answers.
    is_announced: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<T: Send + 'static> Mailbox<T> {
    /// `wake` is called from the I/O thread when there is something to take, and again only after [`Mailbox::take`].
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Mailbox<T>> {
        Arc::new(Mailbox { answers: Mutex::default(), is_announced: AtomicBool::new(false), wake: Box::new(wake) })
    }

    /// Starts the work; its answer will arrive here.
    pub fn expect(self: &Arc<Self>, ticket: T, work: Work) -> Result<(), Error> {
        self.expect_all([(ticket, work)])
    }

    /// Starts several pieces of work, with one wake-up of each thread that they continue on. After an error none has been started.
    pub fn expect_all(self: &Arc<Self>, works: impl IntoIterator<Item = (T, Work)>) -> Result<(), Error> {
        let mut of_io: Vec<Job> = Vec::new();
        let mut of_limiters: Vec<(Arc<Limiter>, Vec<Job>)> = Vec::new();
        for (ticket, Work { future, limiter }) in works {
            let (mailbox, owner) = (self.clone(), limiter.clone());
            let job: Job = Box::pin(async move {
                let answer = future.await;
                mailbox.put(ticket, answer, owner);
            });
            match limiter {
                None => of_io.push(job),
                Some(limiter) => match of_limiters.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &limiter)) {
                    Some((_, jobs)) => jobs.push(job),
                    None => of_limiters.push((limiter, vec![job])),
                },
            }
        }
        let mut of_runtimes = Vec::with_capacity(of_limiters.len());
        for (limiter, jobs) in of_limiters {
            match Work::runtime(&limiter) {
                Some(runtime) => of_runtimes.push((runtime.clone(), jobs)),
                None => of_io.extend(jobs),
            }
        }
        // The only step that can fail comes first.
        if !of_io.is_empty() {
            Io::get()?.submit(of_io);
        }
        for (runtime, mut jobs) in of_runtimes {
            match jobs.pop() {
                Some(only) if jobs.is_empty() => drop(runtime.spawn(only)),
                last => {
                    jobs.extend(last);
                    // One task that starts the others: inside a runtime that is a push to a list.
                    runtime.spawn(async move { jobs.into_iter().for_each(|job| drop(tokio::spawn(job))) });
                }
            }
        }
        Ok(())
    }

    /// All answers that are ready.
    pub fn take(&self) -> Vec<(T, Result<Reply, Error>)> {
        // Cleared before looking: anything that arrives from now on wakes the host again.
        self.is_announced.store(false, SeqCst);
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `owner` owns the runtime that this runs on, if it is not the one of the I/O thread.
    fn put(self: Arc<Self>, ticket: T, answer: Result<Reply, Error>, owner: Option<Arc<Limiter>>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((ticket, answer));
        if !self.is_announced.swap(true, SeqCst) {
            // Spawned behind all tasks that are ready now, so that one wake-up covers all answers from one reply of
            // the server.
            tokio::spawn(async move {
                (self.wake)();
                // Without its owner the runtime would have ended before.
                drop(owner);
            });
        }
    }
}
