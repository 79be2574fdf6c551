//! Questions to an engine, and its answers: now, or later from a server.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tollkeeper::{Descriptor, Exception, Inspected, Limiter, NamedKey, Overloaded, RedisStore, Settlement, Store};

use crate::error::{Error, Kind};
use crate::exception::End;
use crate::hold::{Estimate, Slots};
use crate::io::Io;
use crate::request::Subject;
use crate::verdict::Checked;

/// A question to an engine.
pub enum Ask {
    /// Check a request.
    Check(Subject),
    /// Check several requests, each by itself. One that is invalid refuses all of them, and nothing is charged.
    CheckMany(Vec<Descriptor>),
    /// Check a request and hold its slots.
    Acquire(Subject),
    /// Check a request at an estimated cost, to be settled within this time.
    Reserve(Subject, Option<Duration>),
    /// Settle an estimate at its actual cost.
    Settle(Estimate, Option<u32>, Vec<(String, String)>),
    /// Give an estimate back: the request does not count.
    GiveBack(Estimate),
    /// The state of this rule's buckets for this key.
    Inspect(String, String),
    /// Reset this rule's buckets for this key.
    Reset(String, String),
    /// Make an exception for a key.
    Except(Box<Exception>, End),
    /// Lift the exception of this rule, or of `*` for every rule, and this key.
    Lift(String, NamedKey),
    /// The exceptions in force.
    Exceptions,
    /// Connect now rather than with the first request.
    Connect,
    /// Read the rules, where they come from Postgres, rather than with the first request.
    Follow,
    /// Return leased tokens: the last call before a process exits.
    Close,
}

/// An engine's answer.
pub enum Reply {
    /// To [`Ask::Check`].
    Checked(Checked),
    /// To [`Ask::CheckMany`], in order. One may have been shed while others were decided.
    CheckedMany(Vec<Result<Checked, Overloaded>>),
    /// To [`Ask::Acquire`].
    Acquired(Checked, Slots),
    /// To [`Ask::Reserve`] for attributes.
    Reserved(Checked, Estimate),
    /// To [`Ask::Reserve`] for an HTTP request, whose slots are held until it ends, also if its estimate is settled before.
    ReservedHttp(Checked, Slots, Estimate),
    /// To [`Ask::Settle`].
    Settled(Settlement),
    /// To [`Ask::Inspect`].
    Buckets(Vec<Inspected>),
    /// To [`Ask::Reset`]: whether there was anything to reset.
    Reset(bool),
    /// To [`Ask::Except`]: as it is in force. To [`Ask::Lift`]: the one that was lifted, if there was one.
    Exception(Option<Box<Exception>>),
    /// To [`Ask::Exceptions`], by rule and key.
    Exceptions(Vec<Exception>),
    /// To the others.
    Done,
}

/// An answer, now or later.
pub enum Progress {
    /// The answer.
    Ready(Result<Reply, Error>),
    /// A server must be asked: see [`Mailbox::expect`](crate::Mailbox::expect) and [`Work::wait`].
    Pending(Work),
}

/// An answer that is being found.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

/// A call in progress.
pub struct Work {
    pub(crate) future: Answering,
    /// Whose thread it continues on, if not the I/O thread: the one that calls the server, which saves a hop there and
    /// another one back.
    pub(crate) limiter: Option<Arc<Limiter>>,
}

impl Work {
    /// On the I/O thread.
    pub(crate) fn new(future: Answering) -> Work {
        Work { future, limiter: None }
    }

    /// The runtime whose thread it continues on.
    pub(crate) fn runtime(limiter: &Limiter) -> Option<&Handle> {
        match limiter.store() {
            Store::Redis(redis) => Some(redis.runtime()),
            _ => None,
        }
    }

    /// Waits for it on this thread. A host with a global lock releases it for that time.
    pub fn wait(self) -> Result<Reply, Error> {
        Io::get()?.block_on(self.future)?
    }
}

impl Progress {
    /// The answer of the memory store, which never waits.
    pub(crate) fn at_once(answer: impl Future<Output = Result<Reply, Error>>) -> Progress {
        Progress::Ready(match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => reply,
            Poll::Pending => Err(Error::new(Kind::Usage, "the memory store kept a caller waiting")),
        })
    }

    /// Polls work once on this thread, without calls to a server: those of many callers go out together later.
    pub(crate) fn started(io: &Io, mut work: Answering, limiter: Option<Arc<Limiter>>) -> Progress {
        match RedisStore::without_calls(|| io.poll_once(work.as_mut())) {
            Poll::Ready(reply) => Progress::Ready(reply),
            Poll::Pending => Progress::Pending(Work { future: work, limiter }),
        }
    }
}
