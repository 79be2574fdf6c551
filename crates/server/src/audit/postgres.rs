//! Violations and actions in Postgres: written in the background, and read by queries.
//!
//! They wait in a bounded queue, from which one task writes batches. A slow or unreachable database only fills the
//! queue: then the oldest records are dropped, and counted. A batch is written exactly once: if the answer got lost,
//! the writer first asks whether the transaction was committed.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tollkeeper::sparing::Sparing;
use tollkeeper::{Span, Timestamp};
use tracing::{info, warn};

use super::{Action, ActionKind, ActionQuery, Cursor, Page, Query, Violation, query};
use crate::database::{DEADLINE, Database, DatabaseError, within};

mod action_rows;
mod queue;
mod rows;

use queue::{BATCH, Batch, Content, QUEUE, Queue};

/// How long after a violation its batch is written.
const PACE: Duration = Duration::from_millis(500);
/// The backoff after the first failure, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How often the size of the table is checked.
const TRIM: Duration = Duration::from_secs(60);
/// How often daily partitions are created and dropped.
const SWEEP: Duration = Duration::from_secs(3_600);
/// The most concurrent queries.
const QUESTIONS: usize = 4;

/// How long and how much the database keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    pub(crate) retention: Span,
    pub(crate) most_bytes: u64,
}

/// A queue in front of a database.
#[derive(Debug)]
pub(crate) struct Sink {
    database: Database,
    keeping: Keeping,
    queue: Mutex<Queue>,
    writer: tokio::sync::Mutex<Writer>,
    filling: Notify,
    questions: Semaphore,
    /// Denials whose records were lost.
    dropped: AtomicU64,
    /// Actions that were lost.
    dropped_actions: AtomicU64,
    /// Warnings about a table that is too large.
    logged: Sparing,
}

/// Writes one batch at a time, which has left the queue and may not have arrived.
#[derive(Debug, Default)]
struct Writer {
    connection: Option<PgConnection>,
    has_tables: bool,
    swept: Option<Instant>,
    trimmed: Option<Instant>,
    /// The violations of today alone take more than they may.
    is_full: bool,
    batch: Batch,
}

impl Writer {
    /// Creates tables, connections and partitions as needed, and drops what is too old or too much.
    async fn prepare(&mut self, database: &Database, keeping: Keeping) -> Result<(), DatabaseError> {
        if !self.has_tables {
            database.migrate().await?;
            self.has_tables = true;
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(database.connect().await?),
        };
        if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            within(DEADLINE, rows::sweep(connection, keeping.retention)).await?;
            self.swept = Some(Instant::now());
        }
        if self.trimmed.is_none_or(|trimmed| trimmed.elapsed() >= TRIM) {
            self.is_full = match within(DEADLINE, rows::trim(connection, keeping.most_bytes)).await {
                Ok(size) => size > keeping.most_bytes,
                // Without the right to trim, the table is bounded by its age alone.
                Err(DatabaseError::Refused { code, message }) => {
                    warn!("the size of the audit is not limited: {message} (SQLSTATE {code})");
                    false
                }
                Err(error) => return Err(error),
            };
            self.trimmed = Some(Instant::now());
        }
        Ok(())
    }

    /// Writes the batch, once.
    async fn write(&mut self) -> Result<(), DatabaseError> {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.batch.is_empty()) else { return Ok(()) };
        let Batch { violations, actions, transaction } = &mut self.batch;
        let writing = async {
            if let Some(before) = transaction
                && rows::is_committed(connection, before).await?
            {
                return Ok(());
            }
            *transaction = None;
            let mut begun = connection.begin().await?;
            let name = rows::transaction_id(&mut begun).await?;
            match actions.is_empty() {
                true => rows::insert(&mut begun, violations).await?,
                false => action_rows::insert(&mut begun, actions).await?,
            }
            // From here on it may be committed without our knowing.
            *transaction = Some(name);
            begun.commit().await?;
            Ok(())
        };
        within(DEADLINE, writing).await
    }
}

impl Sink {
    pub(crate) fn new(database: Database, keeping: Keeping) -> Sink {
        Sink {
            database,
            keeping,
            queue: Mutex::default(),
            writer: tokio::sync::Mutex::default(),
            filling: Notify::new(),
            questions: Semaphore::new(QUESTIONS),
            dropped: AtomicU64::new(0),
            dropped_actions: AtomicU64::new(0),
            logged: Sparing::every(Duration::from_secs(600)),
        }
    }

    /// Queues a violation.
    pub(super) fn push(&self, violation: Violation) {
        let mut queue = self.lock();
        let oldest = queue.push(violation);
        self.dropped.fetch_add(oldest.map_or(0, |oldest| oldest.count), Relaxed);
        if queue.len() >= BATCH {
            self.filling.notify_one();
        }
    }

    /// Queues an action. Actions are rare, so each is written at once.
    pub(super) fn push_action(&self, action: Action) {
        let oldest = self.lock().push_action(action);
        self.dropped_actions.fetch_add(u64::from(oldest.is_some()), Relaxed);
        self.filling.notify_one();
    }

    /// How many records are queued.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// How many denials were lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// How many actions were lost.
    pub(super) fn dropped_actions(&self) -> u64 {
        self.dropped_actions.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes records as they come; never returns.
    pub(crate) async fn run(&self) {
        let mut backoff = BACKOFF.0;
        loop {
            match self.write_all().await {
                Ok(()) => {
                    if backoff > BACKOFF.0 {
                        info!("{} accepts audit records again", self.database.address());
                        backoff = BACKOFF.0;
                    }
                    // Either is a reason to continue.
                    let _ = timeout(PACE, self.filling.notified()).await;
                }
                Err(error) => {
                    if backoff == BACKOFF.0 {
                        warn!("audit records wait in memory, up to {QUEUE} of them: {error}");
                    }
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Writes what is queued, within a deadline. Call it while stopping, when [`Sink::run`] has ended.
    pub(crate) async fn finish(&self, time: Duration) {
        // A cancelled write may have left the connection in the middle of a statement.
        self.writer.lock().await.connection = None;
        let _ = timeout(time, self.write_all()).await;
        let mut left = self.writer.lock().await.batch.content();
        left += self.lock().content();
        if left != Content::default() {
            warn!("{left} could not be written to the audit in {}", self.database.address());
        }
    }

    /// Writes batch after batch until the queue is empty.
    async fn write_all(&self) -> Result<(), DatabaseError> {
        let mut writer = self.writer.lock().await;
        loop {
            if writer.batch.is_empty() {
                writer.batch = self.lock().next_batch();
            }
            // Even an empty batch creates partitions in time.
            let prepared = writer.prepare(&self.database, self.keeping).await;
            if prepared.is_ok() && writer.is_full && writer.batch.has_violations() {
                self.drop_for_size(mem::take(&mut writer.batch).content());
                continue;
            }
            let written = match prepared {
                Ok(()) => writer.write().await,
                failed => failed,
            };
            match written {
                Ok(()) if writer.batch.is_empty() => return Ok(()),
                Ok(()) => writer.batch = Batch::default(),
                Err(DatabaseError::Refused { code, message }) if code.starts_with("22") || code.starts_with("23") => {
                    // A batch that the database will never accept must not block the rest.
                    let lost = mem::take(&mut writer.batch).content();
                    self.dropped.fetch_add(lost.denials, Relaxed);
                    self.dropped_actions.fetch_add(lost.actions, Relaxed);
                    writer.connection = None;
                    warn!("{lost} were refused by the audit database and are lost: {message} (SQLSTATE {code})");
                }
                Err(error) => {
                    writer.connection = None;
                    return Err(error);
                }
            }
        }
    }

    /// Counts what a table that is too large does not take.
    fn drop_for_size(&self, lost: Content) {
        self.dropped.fetch_add(lost.denials, Relaxed);
        if let Some(left_out) = self.logged.turn() {
            let most = self.keeping.most_bytes / 1_000_000;
            warn!(
                "the violations of today take more than {most} MB in {}, so further ones are counted and not written; raise \
                 audit.max_size_mb{left_out}",
                self.database.address()
            );
        }
    }

    /// The violations that match, newest first.
    pub(crate) async fn find(&self, query: &Query) -> Result<Page, DatabaseError> {
        let asking = async {
            // The semaphore lives as long as `self`, so it is never closed.
            let _turn = self.questions.acquire().await;
            let mut connection = self.database.connect().await?;
            let mut violations = rows::select(&mut connection, query).await?;
            let next =
                violations.get(query.limit).and(violations.get(query.limit.saturating_sub(1))).map(Cursor::after);
            violations.truncate(query.limit);
            Ok(Page { violations, next })
        };
        within(2 * DEADLINE, asking).await
    }

    /// The actions that match, newest first.
    pub(super) async fn find_actions(&self, query: &ActionQuery) -> Result<Vec<Action>, DatabaseError> {
        let asking = async {
            let _turn = self.questions.acquire().await;
            let mut connection = self.database.connect().await?;
            action_rows::select(&mut connection, query).await
        };
        within(2 * DEADLINE, asking).await
    }
}
