//! Observes decisions without delaying requests: requests leave notes ([`crate::capture`]), which a task reads every
//! fifth of a second while there are any, or a caller of the report before that, and passes to the audit and, if enabled, to insight.

mod preview;
mod report;

pub(crate) use preview::Preview;
pub(crate) use report::Report;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tollkeeper::{Limiter, Request, Row, Rule, Timestamp};

use crate::audit::{self, Audit, Page, Query};
use crate::capture::{Batch, Capture, Noted};
use crate::database::DatabaseError;
use crate::insight::Insight;
use crate::metrics::{Family, Metrics, catalog};
use crate::privacy::Privacy;
use crate::unmatched::Unmatched;
use report::{Dropped, Sources};

/// How often notes are read at least, while there are any.
const REFRESH: Duration = Duration::from_millis(200);
/// How often counters are read while there are none: requests without a rule leave no note.
const IDLE: Duration = Duration::from_secs(1);

/// What is observed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) analysis: Analysis,
    pub(crate) audit: audit::Settings,
}

/// Whether traffic is analysed: hot keys, findings, timelines. The audit is kept in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Analysis {
    #[default]
    On,
    Off,
}

/// Takes notes of requests, and passes them to the audit and to insight.
#[derive(Debug)]
pub(crate) struct Observer {
    capture: Capture,
    /// If traffic is analysed.
    unmatched: Option<Unmatched>,
    pub(crate) audit: Audit,
    privacy: Arc<Privacy>,
    began: Timestamp,
    reader: Mutex<Reader>,
}

/// Whatever holds the lock reads the notes.
#[derive(Debug)]
struct Reader {
    spare: Batch,
    insight: Option<Insight>,
    /// Whether nothing had happened when it last read.
    is_idle: bool,
}

impl Observer {
    pub(crate) fn new(settings: Settings, now: Timestamp) -> Observer {
        let (noted, insight) = match settings.analysis {
            Analysis::On => (Noted::Everything, Some(Insight::new(now))),
            Analysis::Off => (Noted::Denials, None),
        };
        Observer {
            capture: Capture::new(noted),
            unmatched: insight.is_some().then(Unmatched::default),
            privacy: settings.audit.privacy.clone(),
            audit: Audit::new(settings.audit),
            began: now,
            reader: Mutex::new(Reader { spare: Batch::default(), insight, is_idle: false }),
        }
    }

    /// Notes the decisions about a request. The only part that a request waits for.
    pub(crate) fn observe(&self, limiter: &Limiter, rows: &[Row], request: &impl Request) {
        match &self.unmatched {
            Some(unmatched) if rows.is_empty() => unmatched.note(&limiter.policy(), request),
            None if rows.is_empty() => {}
            _ => self.capture.note(rows, request, || limiter.store().now()),
        }
    }

    /// Reads notes as they come, and writes to the audit's database; never returns.
    pub(crate) async fn run(&self, limiter: &Limiter, metrics: &Metrics) {
        let reading = async {
            loop {
                let is_idle = self.refresh(limiter, metrics).is_idle;
                if is_idle && timeout(IDLE, self.capture.begun.notified()).await.is_err() {
                    continue;
                }
                // Whichever comes first; both are fine.
                let _ = timeout(REFRESH, self.capture.filling.notified()).await;
            }
        };
        tokio::join!(self.audit.run(), reading);
    }

    /// Reads and writes what is left, within a deadline. Call it while stopping, when [`Observer::run`] has ended.
    pub(crate) async fn finish(&self, limiter: &Limiter, metrics: &Metrics) {
        drop(self.refresh(limiter, metrics));
        self.audit.finish().await;
    }

    /// Reads all notes so far.
    fn refresh(&self, limiter: &Limiter, metrics: &Metrics) -> MutexGuard<'_, Reader> {
        let now = limiter.store().now();
        let mut guard = self.lock();
        let Reader { spare, insight, is_idle } = &mut *guard;
        let mut recorder = self.audit.recorder();
        if let Some(insight) = insight {
            insight.follow(limiter.policy(), now);
        }
        let notes = self.capture.drain(spare, |note| {
            if let Some(insight) = insight {
                insight.add(&note);
            }
            recorder.add(&note);
        });
        *is_idle = notes == 0;
        if let Some(insight) = insight {
            let unmatched = self.unmatched.as_ref();
            let lacking = unmatched.map(|unmatched| unmatched.lacking(&limiter.policy())).unwrap_or_default();
            *is_idle &= !insight.count(metrics, &lacking, now);
        }
        recorder.flush(now);
        drop(recorder);
        guard
    }

    fn lock(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The violations that match, up to now, and where they were found.
    pub(crate) async fn violations(
        &self,
        limiter: &Limiter,
        metrics: &Metrics,
        query: &Query,
    ) -> Result<(Page, &'static str), DatabaseError> {
        drop(self.refresh(limiter, metrics));
        self.audit.find(query).await
    }

    /// The current state of the service and its traffic.
    pub(crate) fn report(&self, limiter: &Limiter, metrics: &Metrics) -> Report {
        let reader = self.refresh(limiter, metrics);
        Report::new(Sources {
            limiter,
            metrics,
            insight: reader.insight.as_ref(),
            audit: &self.audit,
            privacy: &self.privacy,
            began: self.began,
            dropped: self.dropped_beside(&reader),
        })
    }

    /// Tries a rule on the remembered requests of the one that it would replace. This takes a while.
    pub(crate) fn preview(&self, limiter: &Limiter, metrics: &Metrics, rule: Rule) -> Preview {
        let journal = Preview::check(&limiter.policy(), &rule).and_then(|()| {
            let reader = self.refresh(limiter, metrics);
            let insight = reader.insight.as_ref().ok_or("traffic is not observed (insight: false)")?;
            let observed = insight.rule(rule.name()).ok_or("no request has matched this rule yet")?;
            Ok(observed.journal().clone())
        });
        Preview::new(journal, rule, limiter.store().now())
    }

    /// What did not fit.
    pub(crate) fn dropped(&self) -> Dropped {
        self.dropped_beside(&self.lock())
    }

    fn dropped_beside(&self, reader: &Reader) -> Dropped {
        let (decisions, violations) = self.capture.dropped();
        let missed = reader.insight.as_ref().map_or(0, |insight| decisions + insight.dropped());
        Dropped { decisions: missed, violations: violations + self.audit.dropped() }
    }

    /// The same as metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        let Dropped { decisions, violations } = self.dropped();
        vec![
            Family::single(&catalog::OBSERVATIONS_DROPPED, decisions),
            Family::single(&catalog::VIOLATIONS_DROPPED, violations),
            self.audit.queue(),
        ]
    }
}

#[cfg(test)]
mod tests;
