//! What traffic looks like from inside: hot keys, who is denied and how they take it, and whether a limit is wrong.
//!
//! A request leaves notes behind ([`crate::capture`]) and goes on. Whoever refreshes reads them: a task, every fifth of a second,
//! or somebody who asks. Everything has a bound, and what did not fit is counted.

mod behaviour;
mod demand;
mod evidence;
mod finding;
mod hot_keys;
mod report;
mod rule;
mod sample;
mod state;
mod timeline;

pub(crate) use report::{Dropped, Report};

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper::{Limiter, Request, Row, Rule, Span, Timestamp};

use crate::audit::{Actions, Audit, Page, Query, Sink, Violation};
use crate::capture::{Capture, Note};
use crate::database::DatabaseError;
use crate::metrics::{Family, Metrics, catalog};
use crate::privacy::{MAX_KEY, Privacy, bounded, fingerprint};
use rule::{Answer, Seen};
use state::State;

/// How often notes are read at least.
const REFRESH: Duration = Duration::from_millis(200);

/// How much is kept, and of whom.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Whether anything is noted at all.
    pub(crate) enabled: bool,
    /// Violations kept in memory.
    pub(crate) keep: usize,
    /// A database that gets them too.
    pub(crate) sink: Option<Arc<Sink>>,
    pub(crate) privacy: Privacy,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { enabled: true, keep: 10_000, sink: None, privacy: Privacy::default() }
    }
}

/// Everything that is known of the traffic.
#[derive(Debug)]
pub(crate) struct Insight {
    settings: Settings,
    capture: Capture,
    /// Nobody outside can tell which keys it puts together, or into a sample.
    hasher: RandomState,
    /// The name of this process in records.
    pub(crate) instance: Arc<str>,
    /// What people did to single keys: kept whether traffic is observed or not.
    pub(crate) actions: Actions,
    state: Mutex<State>,
}

impl Insight {
    pub(crate) fn new(settings: Settings, now: Timestamp) -> Insight {
        let audit = Audit::new(settings.keep, settings.sink.clone());
        Insight {
            actions: Actions::new(settings.sink.clone()),
            settings,
            capture: Capture::new(),
            hasher: RandomState::new(),
            instance: instance().into(),
            state: Mutex::new(State::new(audit, now)),
        }
    }

    /// Notes what was decided about a request. The only part that a request waits for.
    pub(crate) fn observe(&self, limiter: &Limiter, rows: &[Row], request: &impl Request) {
        if self.settings.enabled && !rows.is_empty() {
            self.capture.note(rows, request, limiter.store().now());
        }
    }

    /// Reads notes as they come, for ever, and writes to the database if there is one.
    pub(crate) async fn run(&self, limiter: &Limiter, metrics: &Metrics) {
        let reading = async {
            loop {
                // Whichever comes first; both are fine.
                let _ = tokio::time::timeout(REFRESH, self.capture.filling.notified()).await;
                drop(self.refresh(limiter, metrics));
            }
        };
        match &self.settings.sink {
            Some(sink) => drop(tokio::join!(reading, sink.run())),
            None => reading.await,
        }
    }

    /// Reads and writes what is left, within a time. For the end of the service, when nobody runs this any more.
    pub(crate) async fn finish(&self, limiter: &Limiter, metrics: &Metrics) {
        const TIME: Duration = Duration::from_secs(3);
        self.refresh(limiter, metrics).audit.flush(Timestamp::MAX);
        if let Some(sink) = &self.settings.sink {
            sink.finish(TIME).await;
        }
    }

    /// Reads what was noted until now.
    fn refresh(&self, limiter: &Limiter, metrics: &Metrics) -> MutexGuard<'_, State> {
        let now = limiter.store().now();
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        state.follow(limiter.policy(), now);
        let mut spare = std::mem::take(&mut state.spare);
        self.capture.drain(&mut spare, |note| self.read(state, note));
        state.spare = spare;
        state.count(metrics, now);
        state.rules.values_mut().for_each(|rule| rule.age(now));
        state.audit.flush(now);
        guard
    }

    fn read(&self, state: &mut State, note: Note<'_>) {
        let hash = self.hasher.hash_one((note.variant, note.key));
        let Some(insight) = state.tracked(note.rule, note.at) else {
            state.beyond += 1;
            return self.record(state, &note, hash);
        };
        let answer = note.denied.map_or(Answer::Allowed, |denied| Answer::Denied(denied.retry_after));
        let own_quota = insight.has_quota(note.rule.quota());
        insight.add(Seen {
            at: note.at,
            hash,
            variant: note.variant,
            key: note.key,
            cost: note.cost,
            answer,
            own_quota,
        });
        self.record(state, &note, hash);
    }

    /// Hands a denial to the audit.
    fn record(&self, state: &mut State, note: &Note<'_>, hash: u64) {
        let Some(denied) = note.denied else { return };
        let user_id = denied.user_id.map(|user| match self.settings.privacy.is_secret("user_id") {
            true => fingerprint(user),
            false => user.to_string(),
        });
        let violation = Violation {
            id: 0,
            at: note.at,
            rule: note.rule.shared_name(),
            key: self.settings.privacy.shown_key(note.rule, note.variant, note.key).into_owned(),
            user_id,
            ip: denied.ip.map(str::to_string),
            endpoint: denied.endpoint.map(str::to_string),
            cost: note.cost,
            remaining: denied.remaining,
            retry_after_ms: denied.retry_after.map(Span::as_millis_ceil),
            count: 1,
            shadow: !note.rule.is_enforced(),
            instance: self.instance.clone(),
        };
        let rule = self.hasher.hash_one(note.rule.name());
        state.audit.add(self.hasher.hash_one((rule, hash)), rule, violation);
    }

    /// A key that somebody named, as it may be kept: of this rule, or of every rule where that is `*`.
    pub(crate) fn shown_key(&self, limiter: &Limiter, rule: &str, key: &str) -> String {
        let policy = limiter.policy();
        let meant: Vec<&Rule> =
            policy.rules().iter().filter(|one| rule == "*" || *one.name() == *rule).map(|r| &**r).collect();
        self.settings.privacy.shown_text(&meant, &bounded(key, MAX_KEY)).into_owned()
    }

    /// The violations that are asked for, and who knew them.
    pub(crate) async fn violations(
        &self,
        limiter: &Limiter,
        metrics: &Metrics,
        query: &Query,
    ) -> Result<(Page, &'static str), DatabaseError> {
        let recent = self.refresh(limiter, metrics).audit.find(query);
        match &self.settings.sink {
            Some(sink) => Ok((sink.find(query).await?, "postgres")),
            None => Ok((recent, "memory")),
        }
    }

    /// What did not fit.
    pub(crate) fn dropped(&self) -> Dropped {
        let (decisions, violations) = self.capture.dropped();
        let violations = violations + self.settings.sink.as_ref().map_or(0, |sink| sink.dropped());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Dropped { decisions: decisions + state.beyond, violations }
    }

    /// The same as metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        let Dropped { decisions, violations } = self.dropped();
        let waiting = self.settings.sink.as_ref().map_or(0, |sink| sink.waiting());
        vec![
            Family::single(&catalog::OBSERVATIONS_DROPPED, decisions),
            Family::single(&catalog::VIOLATIONS_DROPPED, violations),
            Family::single(&catalog::AUDIT_QUEUE, waiting as u64),
        ]
    }
}

/// Machine and process, so that records of several can be told apart.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("tollkeeper");
    format!("{}:{}", bounded(host, 64), std::process::id())
}

#[cfg(test)]
mod tests;
