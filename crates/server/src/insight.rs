//! What traffic looks like from inside: hot keys, who is denied and how they take it, and whether a limit is wrong.
//!
//! A request leaves notes behind ([`capture`]) and goes on. Whoever refreshes reads them: a task, every fifth of a second,
//! or somebody who asks. Everything has a bound, and what did not fit is counted.

mod behaviour;
mod capture;
mod demand;
mod finding;
mod hot_keys;
mod privacy;
mod report;
mod rule;
mod sample;
mod timeline;

pub(crate) use capture::MAX_KEY;
pub(crate) use privacy::{Privacy, bounded, fingerprint};
pub(crate) use report::{Dropped, Report};

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::{Limiter, Policy, Request, Row, Rule, Span, Timestamp};

use crate::audit::{Audit, Page, Query, Sink, Violation};
use crate::database::DatabaseError;
use crate::metrics::{Metrics, families};
use capture::{Batch, Capture, Note};
use rule::{Answer, Outcomes, RuleInsight, Seen};
use timeline::Timeline;

/// How often notes are read at least.
const REFRESH: Duration = Duration::from_millis(200);
/// Rules that are looked at closely; more than these come up together only in very large files.
const MOST_RULES: usize = 128;

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
    instance: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spare: Batch,
    policy: Option<Arc<Policy>>,
    began: Timestamp,
    rules: HashMap<Arc<str>, RuleInsight>,
    /// Decisions by rules beyond [`MOST_RULES`].
    beyond: u64,
    /// The counters as they were last seen.
    counted: HashMap<Arc<str>, Outcomes>,
    latency: Timeline<Latency>,
    latency_counted: Latency,
    audit: Audit,
}

/// Decisions by how long they took: one count for each bound of the histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Latency(Vec<u64>);

impl std::ops::AddAssign for Latency {
    fn add_assign(&mut self, other: Latency) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

impl Insight {
    pub(crate) fn new(settings: Settings, now: Timestamp) -> Insight {
        let state = State {
            spare: Batch::default(),
            policy: None,
            began: now,
            rules: HashMap::new(),
            beyond: 0,
            counted: HashMap::new(),
            latency: Timeline::new(),
            latency_counted: Latency::default(),
            audit: Audit::new(settings.keep, settings.sink.clone()),
        };
        Insight {
            settings,
            capture: Capture::new(),
            hasher: RandomState::new(),
            instance: instance().into(),
            state: Mutex::new(state),
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
        let own_quota = insight.has_quota(&note.rule.quota);
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
            rule: note.rule.name.clone(),
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
        let rule = self.hasher.hash_one(&*note.rule.name);
        state.audit.add(self.hasher.hash_one((rule, hash)), rule, violation);
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

    /// The same for Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let Dropped { decisions, violations } = self.dropped();
        let waiting = self.settings.sink.as_ref().map_or(0, |sink| sink.waiting());
        families(&[
            ("tollgate_observations_dropped_total", "counter", "Decisions that hot keys and findings miss.", decisions),
            ("tollgate_violations_dropped_total", "counter", "Denials that the audit misses.", violations),
            ("tollgate_audit_queue", "gauge", "Records that wait to be written to the database.", waiting as u64),
        ])
    }
}

impl State {
    /// The rules in force are the ones that are looked at.
    fn follow(&mut self, policy: Arc<Policy>, now: Timestamp) {
        if self.policy.as_ref().is_some_and(|known| Arc::ptr_eq(known, &policy)) {
            return;
        }
        self.rules.retain(|name, insight| match policy.rule(name) {
            Some(rule) => {
                insight.follow(rule, now);
                true
            }
            None => is_throttle(name),
        });
        self.counted.retain(|name, _| policy.rule(name).is_some() || is_throttle(name));
        self.policy = Some(policy);
    }

    /// What is known of a rule, from its first decision on; `None` when there are too many.
    fn tracked(&mut self, rule: &Arc<Rule>, now: Timestamp) -> Option<&mut RuleInsight> {
        if !self.rules.contains_key(&rule.name) {
            let policy = self.policy.as_ref()?;
            // A caller may bring a limit of its own; what is judged is the rule's.
            let own = policy.rule(&rule.name);
            if self.rules.len() >= MOST_RULES || (own.is_none() && !is_throttle(&rule.name)) {
                return None;
            }
            self.rules.insert(rule.name.clone(), RuleInsight::new(own.unwrap_or(rule), self.began.max(now)));
        }
        self.rules.get_mut(&rule.name)
    }

    /// Adds what the counters have grown by to this second.
    fn count(&mut self, metrics: &Metrics, now: Timestamp) {
        let second = now.as_micros() / Span::SECOND.as_micros();
        for (rule, allowed, denied) in metrics.outcomes() {
            let outcomes = Outcomes { allowed, denied };
            let before = self.counted.insert(rule.name.clone(), outcomes).unwrap_or_default();
            if outcomes != before
                && let Some(insight) = self.tracked(&rule, now)
            {
                insight.timeline.add(
                    second,
                    Outcomes {
                        allowed: allowed.saturating_sub(before.allowed),
                        denied: denied.saturating_sub(before.denied),
                    },
                );
            }
        }
        let durations = metrics.durations();
        let before = std::mem::replace(&mut self.latency_counted, Latency(durations.clone()));
        let grown = durations.iter().zip(before.0.iter().chain(std::iter::repeat(&0)));
        let grown: Vec<u64> = grown.map(|(now, before)| now.saturating_sub(*before)).collect();
        if grown.iter().any(|count| *count > 0) {
            self.latency.add(second, Latency(grown));
        }
    }
}

/// Whether this is what `CL.THROTTLE` is counted under: a rule that no file names.
fn is_throttle(name: &str) -> bool {
    name.starts_with('(')
}

/// Machine and process, so that records of several can be told apart.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("tollgate");
    format!("{}:{}", bounded(host, 64), std::process::id())
}

#[cfg(test)]
mod tests;
