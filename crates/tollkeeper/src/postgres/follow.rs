//! Follows the rules in Postgres: a notification announces a change at once, and the version is polled every second
//! in case a notification was lost. Whatever goes wrong, the last good rules stay in force.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::{Notify, watch};
use tollkeeper_core::{Policy, RuleSpec};

use super::database::{DEADLINE, Database, within};
use super::error::RulesError;
use super::set::RuleSet;
use super::status::{Failure, Status};
use super::{reading, snapshot};

/// How often the version is polled.
const POLL: Duration = Duration::from_secs(1);
/// How long to wait before trying an unreachable database again.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(5);
const CHANNEL: &str = "tollkeeper_rules";

/// The initial rules, and the task that follows their changes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The rules in force.
    pub policy: Policy,
    /// Has to be run: see [`Following::run`].
    pub following: Arc<Following>,
}

/// Why there are no initial rules.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rules_from: {0}")]
pub struct OpenError(String);

/// The rules of a database, as this instance knows them.
#[derive(Debug)]
pub struct Following {
    database: Database,
    snapshot: Option<PathBuf>,
    status: Mutex<Status>,
    /// Signals a change.
    changed: Notify,
    /// The newest version that was read, valid or not.
    seen: watch::Sender<Option<i64>>,
    errors: [AtomicU64; 2],
}

/// The rules of a database, or of the snapshot if the database is unreachable. Fails rather than start without rules:
/// a limiter without rules lets everything pass.
pub async fn open(database: Database, snapshot: Option<PathBuf>) -> Result<Opened, OpenError> {
    let found = async {
        database.migrate().await?;
        let mut connection = database.connect().await?;
        within(DEADLINE, reading::last_good(&mut connection)).await
    };
    let (mut status, mut seen) = (Status::default(), None);
    let set = match found.await {
        Ok((set, None)) => {
            seen = Some(set.version);
            set
        }
        Ok((set, Some(bad))) => {
            tracing::error!("rules_from: {bad}; the rules of version {} are in force", set.version);
            set
        }
        Err(error) => {
            let address = database.address();
            let Some(path) = &snapshot else {
                let hint = "with rules_snapshot, the service could start with the last rules it has read";
                return Err(OpenError(format!("{error}; {hint}")));
            };
            match snapshot::load(path, address) {
                Ok(set) => {
                    let (version, path) = (set.version, path.display());
                    tracing::warn!("rules_from: {error}; starting with version {version} of the rules, from {path}");
                    status.unreachable = Some(error.to_string());
                    set
                }
                Err(problem) => {
                    return Err(OpenError(format!("{error}; and rules_snapshot {} {problem}", path.display())));
                }
            }
        }
    };
    status.version = set.version;
    let following = Following {
        database,
        snapshot,
        status: Mutex::new(status),
        changed: Notify::new(),
        seen: watch::Sender::new(seen),
        errors: Default::default(),
    };
    if seen.is_some() {
        following.keep(set.version, specs(&set.policy)).await;
    }
    warn_of(&set.policy);
    Ok(Opened { policy: set.policy, following: Arc::new(following) })
}

impl Following {
    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.lock().clone()
    }

    /// How often newer rules could not be loaded.
    pub fn errors(&self, failure: Failure) -> u64 {
        self.errors[failure as usize].load(Relaxed)
    }

    /// Polls at once.
    pub fn look(&self) {
        self.changed.notify_one();
    }

    /// Waits for a short time until this instance has read a version.
    pub async fn wait_for(&self, version: i64) {
        let mut seen = self.seen.subscribe();
        self.look();
        let _ = tokio::time::timeout(POLL, seen.wait_for(|seen| seen.is_some_and(|seen| seen >= version))).await;
    }

    /// Never returns: `adopt` puts rules in force, usually by
    /// [`Limiter::replace_policy`](crate::Limiter::replace_policy).
    pub async fn run(self: Arc<Self>, adopt: impl Fn(Policy)) {
        tokio::join!(self.listen(), self.poll(adopt));
    }

    async fn poll(&self, adopt: impl Fn(Policy)) {
        let mut connection = None;
        let mut retry = *RETRY.start();
        loop {
            let wait = match self.lock().unreachable {
                None => POLL,
                Some(_) => {
                    let longer = (2 * retry).min(*RETRY.end());
                    std::mem::replace(&mut retry, longer)
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            match self.newer(&mut connection).await {
                Ok(found) => {
                    retry = *RETRY.start();
                    self.answers();
                    if let Some(set) = found {
                        self.adopt(set, &adopt).await;
                    }
                }
                Err(RulesError::Bad { version, problems }) => {
                    self.answers();
                    self.refuse(version, RulesError::Bad { version, problems }.to_string());
                }
                Err(error) => {
                    connection = None;
                    self.note_unreachable(error.to_string());
                }
            }
        }
    }

    /// The rules, if they differ from the version read last.
    async fn newer(&self, connection: &mut Option<PgConnection>) -> Result<Option<RuleSet>, RulesError> {
        let open = match connection {
            Some(open) => open,
            None => connection.insert(self.database.connect().await?),
        };
        let seen = *self.seen.borrow();
        within(DEADLINE, async {
            // Any other version, not only a newer one: a database may be restored from a backup.
            if seen == Some(reading::version(open).await?) {
                return Ok(None);
            }
            reading::read(open).await.map(Some)
        })
        .await
    }

    async fn adopt(&self, set: RuleSet, adopt: &impl Fn(Policy)) {
        let RuleSet { version, policy } = set;
        let (count, rules) = (policy.rules().len(), specs(&policy));
        warn_of(&policy);
        adopt(policy);
        *self.lock() = Status { version, ..Status::default() };
        self.seen.send_replace(Some(version));
        let noun = if count == 1 { "rule" } else { "rules" };
        tracing::info!("rules: version {version} is in force now, {count} {noun}");
        self.keep(version, rules).await;
    }

    fn refuse(&self, version: i64, problem: String) {
        let in_force = self.lock().version;
        tracing::error!("rules: {problem}; version {in_force} stays in force");
        self.errors[Failure::BadRule as usize].fetch_add(1, Relaxed);
        self.lock().refused = Some((version, problem));
        self.seen.send_replace(Some(version));
    }

    fn note_unreachable(&self, problem: String) {
        self.errors[Failure::Database as usize].fetch_add(1, Relaxed);
        let mut status = self.lock();
        // Logged once per problem, not per attempt.
        if status.unreachable.as_ref() != Some(&problem) {
            tracing::error!("rules: {problem}; version {} stays in force", status.version);
        }
        status.unreachable = Some(problem);
    }

    fn answers(&self) {
        if self.lock().unreachable.take().is_some() {
            tracing::info!("rules: {} answers again", self.database.address());
        }
    }

    async fn keep(&self, version: i64, rules: Vec<RuleSpec>) {
        let Some(path) = self.snapshot.clone() else { return };
        let address = self.database.address().to_string();
        let kept = tokio::task::spawn_blocking(move || snapshot::save(&path, &address, version, rules)).await;
        if let (Ok(Err(error)), Some(path)) = (kept, &self.snapshot) {
            tracing::warn!("rules_snapshot {}: cannot be written: {error}", path.display());
        }
    }

    /// Polls whenever the database notifies. A lost notification only costs a second.
    async fn listen(&self) {
        let mut retry = *RETRY.start();
        loop {
            // A pool of one, because the library needs a pool to listen.
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(DEADLINE);
            let pool = pool.connect_lazy_with(self.database.options().clone());
            if let Ok(mut listener) = PgListener::connect_with(&pool).await {
                listener.eager_reconnect(false);
                if listener.listen(CHANNEL).await.is_ok() {
                    retry = *RETRY.start();
                    // Changes before the listener was connected were not notified.
                    self.look();
                    while let Ok(Some(_)) = listener.try_recv().await {
                        self.look();
                    }
                }
            }
            tokio::time::sleep(retry).await;
            retry = (2 * retry).min(*RETRY.end());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn specs(policy: &Policy) -> Vec<RuleSpec> {
    policy.rules().iter().map(|rule| rule.spec().clone()).collect()
}

fn warn_of(policy: &Policy) {
    if policy.rules().is_empty() {
        tracing::warn!("rules: there are none, so every request passes");
    }
    for rule in policy.rules() {
        for warning in rule.warnings() {
            tracing::warn!("rule `{}`: {}: {}", rule.name(), warning.field, warning.problem);
        }
    }
}
