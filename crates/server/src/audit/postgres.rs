//! Violations on their way to Postgres, and back to those who ask.
//!
//! They wait in a queue with an end, from which one task writes batches. A database that is slow or gone fills the queue and
//! nothing else: what has to go then are the oldest, and they are counted. A batch is written once: whether one whose answer
//! got lost was written is asked before it is tried again.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tollgate::{Span, Timestamp};
use tracing::{info, warn};

use super::{Cursor, Page, Query, Violation, query};
use crate::database::{DEADLINE, Database, DatabaseError, within};

mod rows;

/// Violations that can wait.
const QUEUE: usize = 20_000;
/// Violations that are written together.
const BATCH: usize = 1_000;
/// How long after a violation its batch goes out.
const PACE: Duration = Duration::from_millis(500);
/// How long nothing is tried after the first failure, and after many.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How often days are made and dropped.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Questions that are asked at the same time.
const QUESTIONS: usize = 4;

/// A queue before a database.
#[derive(Debug)]
pub(crate) struct Sink {
    database: Database,
    retention: Span,
    queue: Mutex<VecDeque<Violation>>,
    writer: tokio::sync::Mutex<Writer>,
    filling: Notify,
    questions: Semaphore,
    /// Denials whose records are lost.
    dropped: AtomicU64,
}

/// Who writes: one at a time, with what has left the queue and may not have arrived.
#[derive(Debug, Default)]
struct Writer {
    connection: Option<PgConnection>,
    has_tables: bool,
    swept: Option<Instant>,
    batch: Batch,
}

/// A batch, and the transaction that may have written it.
#[derive(Debug, Default)]
struct Batch {
    violations: Vec<Violation>,
    transaction: Option<String>,
}

impl Batch {
    fn denials(&self) -> u64 {
        self.violations.iter().map(|violation| violation.count).sum()
    }
}

impl Writer {
    /// Writes the batch, once. Makes tables, connections and days where they are missing.
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
        if self.batch.violations.is_empty() {
            return Ok(());
        }
        let Batch { violations, transaction } = &mut self.batch;
        let writing = async {
            if let Some(before) = transaction
                && rows::is_committed(connection, before).await?
            {
                return Ok(());
            }
            *transaction = None;
            let mut begun = connection.begin().await?;
            let name = rows::transaction_id(&mut begun).await?;
            rows::insert(&mut begun, violations).await?;
            // From here on it may be written without our knowing.
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
        }
    }

    /// Adds a violation to those that wait.
    pub(super) fn push(&self, violation: Violation) {
        let mut queue = self.lock();
        if queue.len() == QUEUE {
            let oldest = queue.pop_front();
            self.dropped.fetch_add(oldest.map_or(0, |oldest| oldest.count), Relaxed);
        }
        queue.push_back(violation);
        if queue.len() >= BATCH {
            self.filling.notify_one();
        }
    }

    /// How many records wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// How many denials were lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Violation>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes, for ever.
    pub(crate) async fn run(&self) {
        let mut backoff = BACKOFF.0;
        loop {
            match self.write_all().await {
                Ok(()) => {
                    if backoff > BACKOFF.0 {
                        info!("{} takes violations again", self.database.address());
                        backoff = BACKOFF.0;
                    }
                    // Either is a reason to go on.
                    let _ = timeout(PACE, self.filling.notified()).await;
                }
                Err(error) => {
                    if backoff == BACKOFF.0 {
                        warn!("violations wait in memory, up to {QUEUE} of them: {error}");
                    }
                    sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Writes what waits, as far as that goes within a time. For the end of the service, when nobody runs this any more.
    pub(crate) async fn finish(&self, time: Duration) {
        // Whoever was stopped may have left it in the middle of something.
        self.writer.lock().await.connection = None;
        let _ = timeout(time, self.write_all()).await;
        let under_way: u64 = self.writer.lock().await.batch.denials();
        let left = under_way + self.lock().iter().map(|violation| violation.count).sum::<u64>();
        if left > 0 {
            warn!("{left} denials did not reach the audit in {}", self.database.address());
        }
    }

    /// Writes batch after batch until nothing waits.
    async fn write_all(&self) -> Result<(), DatabaseError> {
        let mut writer = self.writer.lock().await;
        loop {
            if writer.batch.violations.is_empty() {
                let mut queue = self.lock();
                let most = queue.len().min(BATCH);
                writer.batch = Batch { violations: queue.drain(..most).collect(), transaction: None };
            }
            // Without any, days are still made in time.
            match writer.write(&self.database, self.retention).await {
                Ok(()) if writer.batch.violations.is_empty() => return Ok(()),
                Ok(()) => writer.batch = Batch::default(),
                Err(DatabaseError::Refused { code, message }) if code.starts_with("22") || code.starts_with("23") => {
                    // What it can never take must not keep the rest from it.
                    let lost = mem::take(&mut writer.batch).denials();
                    self.dropped.fetch_add(lost, Relaxed);
                    writer.connection = None;
                    warn!("{lost} denials are not in the audit: {message} (SQLSTATE {code})");
                }
                Err(error) => {
                    writer.connection = None;
                    return Err(error);
                }
            }
        }
    }

    /// The violations that are asked for, the newest first.
    pub(crate) async fn find(&self, query: &Query) -> Result<Page, DatabaseError> {
        let asking = async {
            // Closed never: it lives as long as this.
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
}
