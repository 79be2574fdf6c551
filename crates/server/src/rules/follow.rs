//! Follows the rules in Postgres: a notification announces a change at once, and the version is polled every second
//! in case a notification was lost. Whatever goes wrong, the last good rules stay in force.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use sqlx::PgConnection;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::{Notify, watch};
use tollkeeper::{Limiter, Policy, RuleSpec};

use super::error::RulesError;
use super::set::RuleSet;
use super::status::{Failure, Status};
use super::table::RuleTable;
use super::{reading, snapshot};
use crate::database::{DEADLINE, Database, within};

/// How often the version is polled.
const POLL: Duration = Duration::from_secs(1);
/// How long to wait before trying an unreachable database again.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(5);
const CHANNEL: &str = "tollkeeper_rules";

/// The initial rules of a service, and where newer ones come from, if not from its file.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) following: Option<Arc<Following>>,
}

/// The rules of a database, as this instance knows them.
#[derive(Debug)]
pub(crate) struct Following {
    table: RuleTable,
    snapshot: Option<PathBuf>,
    status: Mutex<Status>,
    /// Signals a change.
    changed: Notify,
    /// The newest version that was read, valid or not.
    seen: watch::Sender<Option<i64>>,
    errors: [AtomicU64; 2],
}

/// The rules of a database, or of the snapshot if the database is unreachable. Fails rather than start without rules:
/// a service without rules lets everything pass.
pub(crate) async fn open(url: &str, snapshot: Option<PathBuf>) -> anyhow::Result<Rules> {
    let database = Database::new(url).map_err(|problem| anyhow::anyhow!("rules_from: {problem}"))?;
    let table = RuleTable::new(database);
    let found = async {
        table.database().migrate().await?;
        table.read_last_good().await
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
            let address = table.database().address();
            let Some(path) = &snapshot else {
                bail!("rules_from: {error}; with rules_snapshot, a service starts on the rules that it has seen last");
            };
            match snapshot::load(path, address) {
                Ok(set) => {
                    let (version, path) = (set.version, path.display());
                    tracing::warn!("rules_from: {error}; starting on version {version} of the rules, from {path}");
                    status.unreachable = Some(error.to_string());
                    set
                }
                Err(problem) => bail!("rules_from: {error}; and rules_snapshot {} {problem}", path.display()),
            }
        }
    };
    status.version = set.version;
    let following = Following {
        table,
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
    Ok(Rules { policy: set.policy, following: Some(Arc::new(following)) })
}

impl Following {
    /// The rules in the database.
    pub(crate) fn table(&self) -> &RuleTable {
        &self.table
    }

    pub(crate) fn status(&self) -> Status {
        self.lock().clone()
    }

    pub(crate) fn errors(&self, failure: Failure) -> u64 {
        self.errors[failure as usize].load(Relaxed)
    }

    /// Polls at once.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    /// Waits for a short time until this instance has read a version.
    pub(crate) async fn wait_for(&self, version: i64) {
        let mut seen = self.seen.subscribe();
        self.look();
        let _ = tokio::time::timeout(POLL, seen.wait_for(|seen| seen.is_some_and(|seen| seen >= version))).await;
    }

    /// Follows for as long as the service runs.
    pub(crate) async fn run(self: Arc<Self>, limiter: Arc<Limiter>) {
        tokio::spawn(self.clone().listen());
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
                        self.adopt(set, &limiter).await;
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
            None => connection.insert(self.table.database().connect().await?),
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

    async fn adopt(&self, set: RuleSet, limiter: &Limiter) {
        let RuleSet { version, policy } = set;
        let (count, rules) = (policy.rules().len(), specs(&policy));
        warn_of(&policy);
        limiter.replace_policy(policy);
        *self.lock() = Status { version, ..Status::default() };
        self.seen.send_replace(Some(version));
        tracing::info!("rules: version {version} is in force now, {count} rules");
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
            tracing::info!("rules: {} answers again", self.table.database().address());
        }
    }

    async fn keep(&self, version: i64, rules: Vec<RuleSpec>) {
        let Some(path) = self.snapshot.clone() else { return };
        let address = self.table.database().address().to_string();
        let kept = tokio::task::spawn_blocking(move || snapshot::save(&path, &address, version, rules)).await;
        if let (Ok(Err(error)), Some(path)) = (kept, &self.snapshot) {
            tracing::warn!("rules_snapshot {}: cannot be written: {error}", path.display());
        }
    }

    /// Polls whenever the database notifies. A lost notification only costs a second.
    async fn listen(self: Arc<Self>) {
        let mut retry = *RETRY.start();
        loop {
            // A pool of one, because the library needs a pool to listen.
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(DEADLINE);
            let pool = pool.connect_lazy_with(self.table.database().options().clone());
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
