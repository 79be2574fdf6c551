//! What every front uses: decide, observe, answer. There is one path, so that no decision goes uncounted.

pub(crate) mod changes;
mod places;
pub(crate) mod together;

pub(crate) use places::KeyPlaces;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, Uri};
// Reads the processor's counter: half of what the system's clock takes, twice for every request.
use quanta::Instant;
use tokio::sync::Notify;
use tollkeeper::http::{AnswerStyle, AttributeSource, Identity};
use tollkeeper::{
    BreakerState, Charge, CheckError, Clock, Decision, Limiter, Permit, Request, Reservation, Row, Source, Store,
    StoreError, Verdict,
};

use crate::alerts;
use crate::config::Config;
use crate::metrics::{Family, Front, Metrics, Outcome, catalog};
use crate::observer::Observer;
use crate::rules::{Following, Rules};
use crate::seal::Seal;
use crate::settings;
use crate::telemetry::Tracer;
use crate::tokens::{Guesses, Tokens};

/// A request that is nothing but its charge.
struct WithoutAttributes;

impl Request for WithoutAttributes {
    fn attribute(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }
}

/// Charges of separate requests that are decided in one call, and the results. Kept, so that the memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Each {
    pub(crate) charges: Vec<Charge>,
    decided: Vec<Result<Decision, StoreError>>,
    pub(crate) rows: Vec<Row>,
}

impl Each {
    pub(crate) fn clear(&mut self) {
        self.charges.clear();
        self.decided.clear();
        self.rows.clear();
    }
}

/// The service behind every front.
#[derive(Debug)]
pub(crate) struct Service {
    /// Rules and store.
    pub(crate) limiter: Arc<Limiter>,
    /// All counters.
    pub(crate) metrics: Arc<Metrics>,
    /// How many alerts were raised.
    pub(crate) alerts: Arc<alerts::Counters>,
    /// The audit and traffic analysis.
    pub(crate) observer: Observer,
    /// How an HTTP request becomes attributes.
    pub(crate) identity: Identity,
    /// How a denied HTTP request is answered.
    pub(crate) answer: AnswerStyle,
    /// Makes the names of slots unguessable.
    pub(crate) seal: Arc<Seal>,
    /// The tokens for everything that shows clients or changes something.
    pub(crate) tokens: Tokens,
    /// Wrong tokens, which are answered with a delay.
    pub(crate) guesses: Arc<Guesses>,
    /// Where the rules come from, if not from a file.
    pub(crate) rules: Option<Arc<Following>>,
    /// Creates spans for requests, if a collector is configured.
    pub(crate) tracer: Tracer,
    /// The places of a request from which the rules in force take their keys.
    pub(crate) key_places: KeyPlaces,
    /// Set while the service drains before stopping: it still answers, but reports that it is not ready.
    pub(crate) draining: Arc<AtomicBool>,
    /// Wakes whoever waits for that.
    pub(crate) drains: Notify,
}

/// Whether requests should be sent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// The store cannot decide.
    NoStore,
    /// The service will stop soon.
    Draining,
}

impl Service {
    /// From a configuration, over an open store.
    pub(crate) fn new(
        config: &Config,
        rules: Rules,
        store: Store,
        tokens: Tokens,
        metrics: Metrics,
    ) -> anyhow::Result<Arc<Service>> {
        let observer = Observer::new(settings::observer(config), store.now());
        let is_memory = matches!(store, Store::Memory(_));
        let mut limiter = Limiter::new(rules.policy, store);
        if !is_memory {
            limiter = limiter.with_local_store(settings::memory_store(config, Clock::system())?);
        }
        Ok(Arc::new(Service {
            limiter: Arc::new(limiter),
            metrics: Arc::new(metrics),
            alerts: Default::default(),
            observer,
            identity: settings::identity(config)?,
            answer: settings::answer_style(config)?,
            seal: Arc::new(Seal::random()?),
            tokens,
            guesses: Arc::default(),
            rules: rules.following,
            tracer: Tracer::default(),
            key_places: KeyPlaces::default(),
            draining: Arc::default(),
            drains: Notify::new(),
        }))
    }

    /// Decides a request, and counts it and its decisions.
    pub(crate) async fn check(&self, front: Front, request: &impl Request) -> Result<Verdict, CheckError> {
        let started = Instant::now();
        let verdict = self.limiter.check(request).await;
        self.count(front, verdict.as_ref());
        let verdict = verdict?;
        self.observe(request, &verdict, started);
        Ok(verdict)
    }

    /// Counts what became of a request that was decided by [`Service::acquire`] or [`Service::reserve`]. These may be
    /// called again for a request that waits, which is still one request.
    pub(crate) fn count(&self, front: Front, verdict: Result<&Verdict, &CheckError>) {
        match verdict {
            Ok(verdict) => self.metrics.count_outcome(front, verdict),
            Err(error) => self.metrics.count_outcome(front, error),
        }
    }

    /// Counts requests that were refused before anything was decided, as when they cannot be read.
    pub(crate) fn refused(&self, front: Front, requests: usize) {
        self.metrics.count_refused(front, requests);
    }

    /// Decides a request, counts the decision, and holds its slots until the permit is dropped.
    pub(crate) async fn acquire(&self, request: &impl Request) -> Result<(Verdict, Permit), CheckError> {
        let started = Instant::now();
        let (verdict, permit) = self.limiter.acquire(request).await?;
        self.observe(request, &verdict, started);
        Ok((verdict, permit))
    }

    /// Decides a request whose cost is an estimate, and counts the decision.
    pub(crate) async fn reserve(
        &self,
        request: &impl Request,
        hold: Duration,
    ) -> Result<(Verdict, Reservation), CheckError> {
        let started = Instant::now();
        let (verdict, reservation) = self.limiter.reserve_for(request, hold).await?;
        self.observe(request, &verdict, started);
        Ok((verdict, reservation))
    }

    /// Decides a charge whose quota came with the request, and counts the decision. An error if the store cannot
    /// answer.
    pub(crate) async fn charge(&self, front: Front, charge: Charge) -> Result<Decision, StoreError> {
        let started = Instant::now();
        // There is one decision per charge.
        let decided = self.limiter.charge(std::slice::from_ref(&charge)).await.and_then(|decided| {
            let nothing = || StoreError::Unavailable { reason: "it decided nothing".into() };
            decided.into_iter().next().ok_or_else(nothing)
        });
        let (decision, source) = decided.inspect_err(|error| self.metrics.count_outcome(front, error))?;
        self.charged(front, &[Row::decided(charge, decision, source)], started.elapsed());
        Ok(decision)
    }

    /// Decides each of these charges separately and in order, without waiting, on a store in this process. `answer` gets each result.
    pub(crate) fn charge_each_now(
        &self,
        front: Front,
        Each { charges, decided, rows }: &mut Each,
        mut answer: impl FnMut(&Charge, &Result<Decision, StoreError>),
    ) {
        let started = Instant::now();
        self.limiter.charge_each_now(charges, decided);
        let took = started.elapsed();
        for (charge, decided) in charges.drain(..).zip(decided.drain(..)) {
            answer(&charge, &decided);
            match decided {
                Ok(decision) => rows.push(Row::decided(charge, decision, Source::Store)),
                Err(error) => self.metrics.count_outcome(front, &error),
            }
        }
        self.charged(front, rows, took);
    }

    /// Each row is a request.
    fn charged(&self, front: Front, rows: &[Row], took: Duration) {
        if rows.is_empty() {
            // Without a decision; to be observed, it would be a request to which no rule applies.
            return;
        }
        let denied = rows.iter().filter(|row| !row.decision.is_allowed()).count();
        self.metrics.count_outcomes(front, Outcome::Allowed, rows.len() - denied);
        self.metrics.count_outcomes(front, Outcome::Denied, denied);
        self.observe_rows(&WithoutAttributes, rows, rows.len(), took);
    }

    /// What every decision goes through: it is counted, added to the trace of its request, and noted with the client.
    fn observe(&self, request: &impl Request, verdict: &Verdict, started: Instant) {
        self.observe_rows(request, verdict.rows(), 1, started.elapsed());
    }

    fn observe_rows(&self, request: &impl Request, rows: &[Row], requests: usize, took: Duration) {
        self.metrics.record(&self.limiter, rows, requests, took);
        self.tracer.note_decision(self.limiter.store(), || Verdict::new(rows.to_vec()), took);
        self.observer.observe(&self.limiter, rows, request);
    }

    /// All metrics, at this moment.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut families = self.metrics.families(&self.limiter);
        families.extend(self.alerts.families());
        families.push(self.tracer.family());
        families.push(Family::single(&catalog::WRONG_TOKENS, self.guesses.wrong()));
        families.extend(self.observer.families());
        families.extend(self.rules.iter().flat_map(|following| following.families()));
        families
    }

    /// Reads notes about traffic; never returns.
    pub(crate) async fn watch_traffic(self: Arc<Service>) {
        self.observer.run(&self.limiter, &self.metrics).await;
    }

    /// Saves the remaining notes, after [`Service::watch_traffic`] has ended.
    pub(crate) async fn end_watch(&self) {
        self.observer.finish(&self.limiter, &self.metrics).await;
    }

    /// The place in which a request gives two different identities, if there is one.
    pub(crate) fn contradiction(&self, uri: &Uri, headers: &HeaderMap) -> Option<AttributeSource> {
        let mapped = self.identity.contradiction(uri, headers).cloned();
        mapped.or_else(|| self.key_places.contradiction(&self.limiter.policy(), &self.identity, uri, headers))
    }

    /// From now on the service reports that it is not ready.
    pub(crate) fn begin_draining(&self) {
        self.draining.store(true, Relaxed);
        self.drains.notify_one();
    }

    /// Whether requests should be sent here. A store in this process can always decide.
    pub(crate) fn readiness(&self) -> Readiness {
        match self.limiter.store() {
            _ if self.draining.load(Relaxed) => Readiness::Draining,
            Store::Redis(redis) if redis.breaker() != BreakerState::Closed => Readiness::NoStore,
            Store::Unreachable(_) => Readiness::NoStore,
            _ => Readiness::Ready,
        }
    }
}
