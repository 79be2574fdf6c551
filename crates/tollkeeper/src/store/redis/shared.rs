//! What all modules that talk to the server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::Mutex as AsyncMutex;
use tollkeeper_core::{Decision, Quota, Source, State, Timestamp};

use super::batch::Booked;
use super::denials::Denials;
use super::fleet::Fleet;
use super::instant::Instant;
use super::io::Io;
use super::leases::Leases;
use super::node::{Refusal, Work};
use super::nodes::{Nodes, Slot};
use super::overload::Overload;
use super::queue::Queue;
use super::script::{At, Call, Script};
use super::server::Server;
use super::stored::{read_log, read_string};
use super::traffic::Counts;
use super::version::Version;
use crate::clock::Clock;
use crate::store::error::StoreError;
use crate::store::exceptions::Exceptions;

/// The connections, and shared state.
pub(super) struct Shared {
    pub(super) nodes: Nodes,
    /// The prefix of all keys.
    pub(super) namespace: Arc<str>,
    pub(super) server: Server,
    /// A manual clock is used instead of the server's: for replay and tests.
    pub(super) clock: Clock,
    pub(super) deadline: Duration,
    /// One per hash slot: a call has only keys of one slot.
    pub(super) queues: Box<[Queue]>,
    pub(super) counts: Counts,
    /// Local decisions; `None` with a manual clock.
    pub(super) ahead: Option<Ahead>,
    /// The instances that share the limits.
    pub(super) fleet: Fleet,
    /// How many microseconds the server's clock is ahead of this process's, by its last answer.
    pub(super) clock_ahead: AtomicI64,
    /// The thread that makes the calls.
    pub(super) io: Io,
    /// Bounds the requests that wait for them.
    pub(super) overload: Overload,
    /// How many charges found no room because the server has reached its `maxmemory`.
    pub(super) full: AtomicU64,
    /// The known exceptions, and their version.
    pub(super) exceptions: Exceptions,
    pub(super) exceptions_known: AsyncMutex<Option<Version>>,
    /// Whether this user may read them.
    pub(super) reads_exceptions: AtomicBool,
}

/// What saves calls, as long as time passes here as it does on the server.
pub(super) struct Ahead {
    pub(super) denials: Denials,
    pub(super) leases: Leases,
}

/// A store's answer to a request.
pub(super) struct Decided {
    pub(super) decisions: Vec<Decision>,
    /// For [`Ask::Estimate`](super::batch::Ask::Estimate): what was booked for each charge, if anything.
    pub(super) booked: Vec<Option<Booked>>,
    /// It was not decided before this moment.
    pub(super) asked_at: Instant,
}

impl Shared {
    /// A stored state, and the time.
    pub(super) async fn read(self: &Arc<Self>, quota: &Quota, key: &str) -> Result<(State, Timestamp), StoreError> {
        let mut command = redis::cmd(if quota.algorithm().keeps_log() { "LRANGE" } else { "MGET" });
        command.arg(key);
        if quota.algorithm().keeps_log() {
            // The first item is a header, derived from the others.
            command.arg(1).arg(-1);
        }
        let now = match self.given_time() {
            Some(now) => now,
            None => {
                let (seconds, micros): (u64, u64) = self.command(key, &redis::cmd("TIME")).await?;
                Timestamp::from_micros(seconds * 1_000_000 + micros)
            }
        };
        let items: Vec<Option<Vec<u8>>> = match self.command(key, &command).await {
            // The state of an algorithm that the rule no longer uses.
            Err(StoreError::Unavailable { reason }) if reason.contains("WRONGTYPE") => Vec::new(),
            other => other?,
        };
        let bytes = items.into_iter().flatten().flatten().collect::<Vec<u8>>();
        let state = if quota.algorithm().keeps_log() { read_log(&bytes) } else { read_string(&bytes) };
        Ok((state, now))
    }

    /// Runs a command on the node of a key, from any thread.
    pub(super) async fn command<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        key: &str,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        let slot = self.nodes.slot(key);
        self.nodes.admit(slot)?;
        let (shared, command) = (self.clone(), command.clone());
        let called = async move { shared.nodes.call(slot, Work::Command(&command), read).await };
        Ok(self.io.run(called).await??)
    }

    /// Runs a command on the node of a slot, from any thread.
    pub(super) async fn run<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        slot: Slot,
        script: &'static Script,
        call: Call,
    ) -> Result<T, Refusal> {
        self.nodes.admit(slot).map_err(Refusal::Failed)?;
        let shared = self.clone();
        let called = async move { shared.nodes.call(slot, Work::Script(script, &call), read).await };
        self.io.run(called).await.map_err(Refusal::Failed)?
    }

    /// The same for a script that is given the windows of calendars.
    pub(super) async fn run_at<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        slot: Slot,
        script: &'static Script,
        call: impl Fn(At) -> Call + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        self.nodes.admit(slot)?;
        let shared = self.clone();
        let called = async move { shared.call_at(slot, script, call, read).await };
        Ok(self.io.run(called).await??)
    }

    /// Makes a call that carries the windows of calendars around the server's time; once more if its clock turns out to
    /// show another time, for which the script does nothing.
    pub(super) async fn call_at<T: Send>(
        &self,
        slot: Slot,
        script: &'static Script,
        call: impl Fn(At) -> Call,
        read: impl Fn(Value) -> Result<T, StoreError> + Sync,
    ) -> Result<T, Refusal> {
        let first = call(self.when());
        match self.nodes.call(slot, Work::Script(script, &first), &read).await {
            Err(Refusal::OtherTime(now)) => {
                self.note_time(now);
                let again = call(At::Server { about: now });
                self.nodes.call(slot, Work::Script(script, &again), &read).await
            }
            other => other,
        }
    }

    /// At what time a call is decided: at the given one, or at the server's.
    pub(super) fn when(&self) -> At {
        self.given_time().map_or_else(|| At::Server { about: self.server_time() }, At::Given)
    }

    /// The server's time, estimated from its last answer and the clock of this process.
    pub(super) fn server_time(&self) -> Timestamp {
        let ahead = self.clock_ahead.load(Relaxed);
        Timestamp::from_micros(self.clock.now().as_micros().saturating_add_signed(ahead))
    }

    /// Records the server's time from an answer that has just arrived.
    pub(super) fn note_time(&self, server: Timestamp) {
        if self.given_time().is_none() {
            let ahead = server.as_micros() as i64 - self.clock.now().as_micros() as i64;
            self.clock_ahead.store(ahead, Relaxed);
        }
    }

    pub(super) fn given_time(&self) -> Option<Timestamp> {
        match &self.clock {
            Clock::System(_) => None,
            Clock::Manual(clock) => Some(clock.now()),
        }
    }
}

/// Decisions that all come from one source.
pub(super) fn from(source: Source, decisions: Vec<Decision>) -> Vec<(Decision, Source)> {
    decisions.into_iter().map(|decision| (decision, source)).collect()
}

/// Parses a server's reply.
pub(super) fn read<T: FromRedisValue>(value: Value) -> Result<T, StoreError> {
    T::from_redis_value(value).map_err(|error| StoreError::unavailable(error.to_string()))
}
