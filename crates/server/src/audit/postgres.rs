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
/// How often daily partitions are created and dropped.
const SWEEP: Duration = Duration::from_secs(3_600);
/// The most concurrent queries.
const QUESTIONS: usize = 4;

/// A queue in front of a database.
#[derive(Debug)]
pub(crate) struct Sink {
    database: Database,
    retention: Span,
    queue: Mutex<Queue>,
    writer: tokio::sync::Mutex<Writer>,
    filling: Notify,
    questions: Semaphore,
    /// Denials whose records were lost.
    dropped: AtomicU64,
    /// Actions that were lost.
    dropped_actions: AtomicU64,
}

/// Writes one batch at a time, which has left the queue and may not have arrived.
#[derive(Debug, Default)]
struct Writer {
    connection: Option<PgConnection>,
    has_tables: bool,
    swept: Option<Instant>,
    batch: Batch,
}

impl Writer {
    /// Writes the batch, once. Creates tables, connections and partitions as needed.
    async fn write(&mut self, database: &Database, retention: Span) -> Result<(), DatabaseError> {
        if !self.has_tables {
            database.migrate().await?;
            self.has_tables = true;
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(database.connect().await?),
        };
        if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            within(DEADLINE, rows::sweep(connection, retention)).await?;
            self.swept = Some(Instant::now());
        }
        if self.batch.is_empty() {
            return Ok(());
        }
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
    pub(crate) fn new(database: Database, retention: Span) -> Sink {
        Sink {
            database,
            retention,
            queue: Mutex::default(),
            writer: tokio::sync::Mutex::default(),
            filling: Notify::new(),
            questions: Semaphore::new(QUESTIONS),
            dropped: AtomicU64::new(0),
            dropped_actions: AtomicU64::new(0),
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
            match writer.write(&self.database, self.retention).await {
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
