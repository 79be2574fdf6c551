//! The audit: which clients were denied by which rule, when, and how often; and what people did to single keys.
//!
//! Denials arrive as notes, after their requests have been answered. The latest ones are kept in memory; with a
//! database they are also written there, and queries go there.

mod action;
mod actions;
mod postgres;
mod query;
mod ring;
mod sampling;
mod violation;

pub(crate) use action::{Action, ActionKind, ActionQuery, ActionsQuery};
pub(crate) use actions::Actions;
pub(crate) use postgres::{Keeping, Sink};
pub(crate) use query::{Page, Query, ViolationsQuery};
pub(crate) use violation::{Blocked, Violation};

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper::{Policy, Rule, Span, Timestamp};

use crate::capture::{Denied, Note};
use crate::database::DatabaseError;
use crate::metrics::{Family, catalog};
use crate::privacy::{MAX_KEY, Privacy, bounded, fingerprint};
use query::Cursor;
use ring::Ring;
use sampling::Sampler;

/// How long a stopping service waits for the database.
const LAST_WRITE: Duration = Duration::from_secs(3);

/// How much is kept, and where.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Violations kept in memory.
    pub(crate) keep: usize,
    /// A database that gets them too.
    pub(crate) sink: Option<Arc<Sink>>,
    pub(crate) privacy: Arc<Privacy>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { keep: 10_000, sink: None, privacy: Arc::default() }
    }
}

/// Who was denied, and what people did.
#[derive(Debug)]
pub(crate) struct Audit {
    /// The name of this process in records.
    pub(crate) instance: Arc<str>,
    /// What people did to single keys.
    pub(crate) actions: Actions,
    records: Mutex<Records>,
    sink: Option<Arc<Sink>>,
    privacy: Arc<Privacy>,
    hasher: RandomState,
}

/// Denials that are being turned into records, and the latest records.
#[derive(Debug)]
struct Records {
    sampler: Sampler,
    ring: Ring,
}

impl Audit {
    pub(crate) fn new(settings: Settings) -> Audit {
        let Settings { keep, sink, privacy } = settings;
        Audit {
            instance: instance().into(),
            actions: Actions::new(sink.clone()),
            records: Mutex::new(Records { sampler: Sampler::default(), ring: Ring::new(keep) }),
            sink,
            privacy,
            hasher: RandomState::new(),
        }
    }

    /// Accepts denials until it is dropped.
    pub(crate) fn recorder(&self) -> Recorder<'_> {
        Recorder { audit: self, records: self.lock(), fresh: Vec::new() }
    }

    /// The latest violations in memory, newest first.
    pub(crate) fn recent(&self, limit: usize) -> Vec<Violation> {
        self.lock().ring.find(&Query { limit, ..Query::default() }).violations
    }

    /// The violations that match, and where they were found.
    pub(crate) async fn find(&self, query: &Query) -> Result<(Page, &'static str), DatabaseError> {
        match &self.sink {
            Some(sink) => Ok((sink.find(query).await?, "postgres")),
            None => Ok((self.lock().ring.find(query), "memory")),
        }
    }

    /// A key given by a user, as it may be stored: of this rule, or with `*` of every rule.
    pub(crate) fn shown_key(&self, policy: &Policy, rule: &str, key: &str) -> String {
        let rules = policy.rules().iter().map(|one| &**one);
        let meant: Vec<&Rule> = rules.filter(|one| rule == "*" || one.name() == rule).collect();
        self.privacy.shown_text(&meant, &bounded(key, MAX_KEY)).into_owned()
    }

    /// Denials whose records did not reach the database.
    pub(crate) fn dropped(&self) -> u64 {
        self.sink.as_ref().map_or(0, |sink| sink.dropped())
    }

    /// How many records wait for the database.
    pub(crate) fn queue(&self) -> Family {
        let waiting = self.sink.as_ref().map_or(0, |sink| sink.waiting());
        Family::single(&catalog::AUDIT_QUEUE, waiting as u64)
    }

    /// Writes to the database, if there is one; never returns.
    pub(crate) async fn run(&self) {
        if let Some(sink) = &self.sink {
            sink.run().await;
        }
    }

    /// Writes what is left, within a deadline. Call it while stopping, when [`Audit::run`] has ended.
    pub(crate) async fn finish(&self) {
        self.recorder().flush(Timestamp::MAX);
        if let Some(sink) = &self.sink {
            sink.finish(LAST_WRITE).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turns denials into records.
pub(crate) struct Recorder<'a> {
    audit: &'a Audit,
    records: MutexGuard<'a, Records>,
    /// Records that are not kept yet.
    fresh: Vec<Violation>,
}

impl Recorder<'_> {
    /// Adds a note, if it is a denial.
    pub(crate) fn add(&mut self, note: &Note<'_>) {
        let Some(denied) = &note.denied else { return };
        let hasher = &self.audit.hasher;
        // A record covers denials of one kind only.
        let rule = hasher.hash_one((note.rule.name(), denied.block.is_some()));
        let key = hasher.hash_one((rule, note.variant, note.key));
        let violation = || self.audit.violation(note, denied);
        self.records.sampler.add(key, rule, note.at, violation, |record| self.fresh.push(record));
    }

    /// Records what has accumulated.
    pub(crate) fn flush(&mut self, now: Timestamp) {
        self.records.sampler.flush(now, |record| self.fresh.push(record));
    }
}

/// Threads note their requests in lists of their own, which are read one after the other: the records are put in order here.
impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.fresh.sort_by_key(|record| record.at);
        for record in std::mem::take(&mut self.fresh) {
            self.audit.keep(&mut self.records.ring, record);
        }
    }
}

impl Audit {
    fn violation(&self, note: &Note<'_>, denied: &Denied<'_>) -> Violation {
        let user_id = denied.user_id.map(|user| match self.privacy.is_secret("user_id") {
            true => fingerprint(user),
            false => user.to_string(),
        });
        Violation {
            id: 0,
            at: note.at,
            rule: note.rule.shared_name(),
            key: self.privacy.shown_key(note.rule, note.variant, note.key).into_owned(),
            user_id,
            ip: denied.ip.map(str::to_string),
            endpoint: denied.endpoint.map(str::to_string),
            cost: note.cost,
            remaining: denied.remaining,
            retry_after_ms: denied.retry_after.map(Span::as_millis_ceil),
            count: 1,
            shadow: note.rule.is_shadow(),
            mode: note.rule.mode(),
            blocked: denied.block.map(|block| Blocked { until: block.until, by: block.made_by.clone() }),
            instance: self.instance.clone(),
        }
    }

    fn keep(&self, ring: &mut Ring, record: Violation) {
        if let Some(sink) = &self.sink {
            sink.push(record.clone());
        }
        ring.push(record);
    }
}

/// Host and process, to distinguish the records of several instances.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("tollkeeper");
    format!("{}:{}", bounded(host, 64), std::process::id())
}
