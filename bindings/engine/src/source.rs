//! Rules in Postgres: read before the first request of a process is decided, followed from then on.
//!
//! A forked process starts with the rules that its parent had, and follows by itself.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as AsyncMutex;
use tokio::task::AbortHandle;
use tollkeeper::Policy;
use tollkeeper::file::{Invalid, Settings};
use tollkeeper::postgres::{self, Database, Following, Opened, Status};
use tollkeeper::sparing::Sparing;

use crate::error::{Error, Kind};
use crate::fork;

/// How long to wait after a failed attempt before the next one.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where rules come from, if not from the settings.
pub(crate) struct Source {
    database: Database,
    snapshot: Option<PathBuf>,
    /// Whether rules were ever read, in this process or in one that it was forked from.
    is_known: AtomicBool,
    of_process: Mutex<Arc<Followed>>,
}

/// What one process follows.
struct Followed {
    generation: u64,
    following: OnceLock<(Arc<Following>, AbortHandle)>,
    /// The last attempt that failed. Whoever holds it reads the rules; the others wait.
    opening: AsyncMutex<Option<(Instant, Error)>>,
    /// Whether somebody reads them in the background.
    is_opening: AtomicBool,
    failures: Sparing,
}

impl Followed {
    fn new() -> Arc<Followed> {
        Arc::new(Followed {
            generation: fork::generation(),
            following: OnceLock::new(),
            opening: AsyncMutex::new(None),
            is_opening: AtomicBool::new(false),
            failures: Sparing::while_failing(),
        })
    }
}

impl Source {
    /// The one that settings name.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Source>, Error> {
        let Some(url) = &settings.rules_from else { return Ok(None) };
        let database = Database::new(url).map_err(|problem| Invalid::new("rules_from", problem))?;
        let snapshot = settings.rules_snapshot.clone();
        let of_process = Mutex::new(Followed::new());
        Ok(Some(Source { database, snapshot, is_known: AtomicBool::new(false), of_process }))
    }

    /// Whether there are rules to decide by.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// Whether this process follows.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed().following.get().is_some()
    }

    /// The version in force, and why there is no newer one; nothing before rules were read.
    pub(crate) fn status(&self) -> Option<Status> {
        self.followed().following.get().map(|(following, _)| following.status())
    }

    /// Reads the rules and follows them from now on, unless this process does already. `adopt` puts rules in force.
    pub(crate) async fn follow<A>(&self, adopt: A) -> Result<(), Error>
    where
        A: Fn(Policy) -> Result<(), Error> + Send + Sync + 'static,
    {
        let followed = fork::still(|| self.followed());
        let mut last = followed.opening.lock().await;
        if followed.following.get().is_some() {
            return Ok(());
        }
        if let Some((_, error)) = last.as_ref().filter(|(at, _)| at.elapsed() < RETRY_AFTER) {
            return Err(error.clone());
        }
        match postgres::open(self.database.clone(), self.snapshot.clone()).await {
            Ok(Opened { policy, following, .. }) => {
                adopt(policy)?;
                self.is_known.store(true, Relaxed);
                // These rules were understood; what is adopted cannot be refused.
                let run = following.clone().run(move |policy| drop(adopt(policy)));
                let _ = followed.following.set((following, tokio::spawn(run).abort_handle()));
                Ok(())
            }
            Err(error) => {
                let error = Error::new(Kind::Unreachable, error);
                // In a forked process nobody waits for it: requests are decided by the rules of the parent.
                if self.is_known()
                    && let Some(left_out) = followed.failures.turn()
                {
                    tracing::warn!(
                        "rules_from: {error}; the rules that this process was forked with stay in force{left_out}"
                    );
                }
                *last = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Whether this call is the one that has to start following in the background.
    pub(crate) fn take_turn(&self) -> bool {
        let followed = self.followed();
        followed.following.get().is_none() && !followed.is_opening.swap(true, Relaxed)
    }

    /// The attempt in the background is over.
    pub(crate) fn give_turn_back(&self) {
        fork::still(|| self.followed()).is_opening.store(false, Relaxed);
    }

    /// What this process follows.
    fn followed(&self) -> Arc<Followed> {
        let mut followed = self.of_process.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.generation != fork::generation() {
            // The parent's task is in the parent, and its locks may be held forever.
            std::mem::forget(std::mem::replace(&mut *followed, Followed::new()));
        }
        followed.clone()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some((_, task)) = self.followed().following.get() {
            task.abort();
        }
    }
}

/// Puts rules in force in an engine for as long as there is one.
pub(crate) fn adopting<E: Send + Sync + 'static>(
    engine: &Arc<E>,
    adopt: fn(&E, Policy) -> Result<(), Error>,
) -> impl Fn(Policy) -> Result<(), Error> + Send + Sync + 'static {
    let engine: Weak<E> = Arc::downgrade(engine);
    move |policy| engine.upgrade().map_or(Ok(()), |engine| adopt(&engine, policy))
}
