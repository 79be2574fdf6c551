//! A copy of the exceptions in Postgres, where there is one.
//!
//! Exceptions live in Redis, and every instance that knows them puts them back when Redis has lost them. The copy is for
//! a Redis that restarts empty while no instance runs. Whichever knows more is right: see [`ExceptionsCopy`].

use std::time::Duration;

use sqlx::{PgConnection, Row as _};
use tokio::time::sleep;
use tollkeeper::{ExceptionsCopy, Limiter, RedisStore, Store};

use crate::database::{DEADLINE, Database, DatabaseError, within};

/// How often exceptions are compared with what was last written.
const EVERY: Duration = Duration::from_secs(1);
/// How long to wait after a failure.
const BACKOFF: Duration = Duration::from_secs(5);

/// Puts back what Redis has lost, then copies every change, until the process ends. Without Redis or without a database
/// there is nothing to do.
pub(crate) async fn keep(limiter: &Limiter, database: Option<Database>) {
    let (Store::Redis(redis), Some(database)) = (limiter.store(), database) else { return };
    let mut keeper = Keeper { redis: redis.clone(), database, written: None };
    // Before the first request: a client that was blocked stays blocked.
    let first = within(DEADLINE, keeper.sync()).await;
    crate::background::spawn(keeper.run(first));
}

struct Keeper {
    redis: RedisStore,
    database: Database,
    written: Option<ExceptionsCopy>,
}

impl Keeper {
    async fn run(mut self, first: anyhow::Result<()>) {
        let (mut outcome, mut is_reported) = (first, false);
        loop {
            match outcome {
                Ok(()) if is_reported => tracing::info!("exceptions are copied to {} again", self.database.address()),
                Err(ref error) if !is_reported => tracing::warn!("exceptions are not copied to Postgres: {error:#}"),
                _ => {}
            }
            is_reported = outcome.is_err();
            sleep(if is_reported { BACKOFF } else { EVERY }).await;
            if outcome.is_ok() && self.redis.copy_exceptions(self.written.as_ref()).await.is_none() {
                continue;
            }
            outcome = self.sync().await;
        }
    }

    /// Puts back what the copy has and Redis lacks, then writes what Redis has and the copy lacks.
    async fn sync(&mut self) -> anyhow::Result<()> {
        self.database.migrate().await?;
        let mut connection = self.database.connect().await?;
        let kept = within(DEADLINE, read(&mut connection)).await?;
        let known = self.redis.copy_exceptions(None).await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.knows_more_than(known.as_ref())) {
            self.redis.restore_exceptions(kept).await?;
        }
        let known = self.redis.copy_exceptions(None).await;
        if let Some(known) = known.as_ref().filter(|known| known.knows_more_than(kept.as_ref())) {
            within(DEADLINE, write(&mut connection, known)).await?;
        }
        self.written = known;
        Ok(())
    }
}

async fn read(connection: &mut PgConnection) -> Result<Option<ExceptionsCopy>, DatabaseError> {
    let query = sqlx::query("select born, changed, exceptions as document from rate_limit_kept_exceptions");
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    let (born, changed): (i64, i64) = (row.try_get("born")?, row.try_get("changed")?);
    Ok(Some(ExceptionsCopy::new(born as u64, changed as u64, row.try_get("document")?)))
}

/// Several instances write the same; none replaces a version that knows more.
async fn write(connection: &mut PgConnection, copy: &ExceptionsCopy) -> Result<(), DatabaseError> {
    const WRITE: &str = "insert into rate_limit_kept_exceptions as kept (born, changed, exceptions)
        values ($1, $2, $3)
        on conflict (only_row) do update
            set born = excluded.born, changed = excluded.changed, exceptions = excluded.exceptions, written_at = now()
            where excluded.born < kept.born or excluded.born = kept.born and excluded.changed > kept.changed";
    let (born, changed) = (copy.born as i64, copy.changed as i64);
    sqlx::query(WRITE).bind(born).bind(changed).bind(&copy.document).execute(connection).await?;
    Ok(())
}
