//! Doors to the limiter. Each is a function `run(listener, service, shutdown)` over the same [`Service`].

mod certified;
pub(crate) mod connections;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod proxy;
pub(crate) mod resp;
mod stranger;

pub(crate) use certified::TLS_CLIENT;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tollkeeper::http::{AnswerStyle, Identity};
use tollkeeper::{
    BreakerState, CostError, Exception, ExceptionKind, Limiter, Permit, Request, Reservation, Store, Verdict,
};

use crate::audit::{Action, ActionKind};
use crate::config::Config;
use crate::insight::Insight;
use crate::metrics::{self, Metrics};
use crate::rules::{Following, Rules};
use crate::settings;
use crate::telemetry::{self, Tracer};

/// What every front serves.
#[derive(Debug)]
pub(crate) struct Service {
    /// Rules and store.
    pub(crate) limiter: Arc<Limiter>,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// What traffic looks like.
    pub(crate) insight: Insight,
    /// How an HTTP request becomes attributes.
    pub(crate) identity: Identity,
    /// How a denied HTTP request is answered.
    pub(crate) answer: AnswerStyle,
    /// Who may see and change things.
    pub(crate) admin: Admin,
    /// Where the rules come from, if not from a file.
    pub(crate) rules: Option<Arc<Following>>,
    /// What makes spans of requests, where a collector is configured.
    pub(crate) tracer: OnceLock<Tracer>,
}

/// What somebody has changed through the admin part.
#[derive(Debug)]
pub(crate) enum Changed<'c> {
    /// An exception was made.
    Excepted(&'c Exception),
    /// An exception was ended.
    Lifted { rule: &'c str, key: &'c str },
    /// A bucket was forgotten.
    Reset { rule: &'c str, key: &'c str },
}

impl<'c> Changed<'c> {
    /// What was done, for which rule (`*` for every one) and which key.
    fn named(&self) -> (ActionKind, &'c str, &'c str) {
        match self {
            Changed::Excepted(exception) => {
                let action = match exception.kind {
                    ExceptionKind::Block => ActionKind::Block,
                    ExceptionKind::Allow => ActionKind::Allow,
                    ExceptionKind::Grant(_) => ActionKind::Grant,
                };
                (action, exception.rule.as_deref().unwrap_or("*"), &exception.key)
            }
            Changed::Lifted { rule, key } => (ActionKind::Lift, rule, key),
            Changed::Reset { rule, key } => (ActionKind::Reset, rule, key),
        }
    }

    fn exception(&self) -> Option<&'c Exception> {
        match self {
            Changed::Excepted(exception) => Some(exception),
            _ => None,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Changed::Excepted(_) => "an exception was made",
            Changed::Lifted { .. } => "an exception was lifted",
            Changed::Reset { .. } => "a bucket was forgotten",
        }
    }
}

/// Who may use the part that shows and changes things.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Admin {
    /// Everybody: the service listens on loopback only.
    Open,
    /// Whoever sends this token.
    Token(String),
    /// Nobody: the service listens to the world and has no token.
    Off,
}

impl Admin {
    /// Whoever has the token; without one, whoever can reach a loopback address.
    pub(crate) fn for_address(token: Option<String>, bound: SocketAddr) -> Admin {
        match token {
            Some(token) => Admin::Token(token),
            None if bound.ip().is_loopback() => Admin::Open,
            None => Admin::Off,
        }
    }
}

/// The token stays out of logs.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Admin::Open => "Open",
            Admin::Token(_) => "Token(..)",
            Admin::Off => "Off",
        })
    }
}

impl Service {
    /// As a configuration says, over a store that is open already.
    pub(crate) fn new(config: &Config, rules: Rules, store: Store, admin: Admin) -> anyhow::Result<Arc<Service>> {
        let insight = Insight::new(settings::insight(config), store.now());
        Ok(Arc::new(Service {
            limiter: Arc::new(Limiter::new(rules.policy, store)),
            metrics: Metrics::new(),
            insight,
            identity: settings::identity(config)?,
            answer: settings::answer_style(config)?,
            admin,
            rules: rules.following,
            tracer: OnceLock::new(),
        }))
    }

    /// Decides a request and counts what was decided.
    pub(crate) async fn check(&self, request: &impl Request) -> Result<Verdict, CostError> {
        let started = Instant::now();
        let verdict = self.limiter.check(request).await?;
        self.observe(request, &verdict, started);
        Ok(verdict)
    }

    /// Decides a request, counts what was decided, and keeps the slots that it occupies until the permit is dropped.
    pub(crate) async fn acquire(&self, request: &impl Request) -> Result<(Verdict, Permit), CostError> {
        let started = Instant::now();
        let (verdict, permit) = self.limiter.acquire(request).await?;
        self.observe(request, &verdict, started);
        Ok((verdict, permit))
    }

    /// Decides a request whose cost is an estimate, and counts what was decided.
    pub(crate) async fn reserve(
        &self,
        request: &impl Request,
        hold: Duration,
    ) -> Result<(Verdict, Reservation), CostError> {
        let started = Instant::now();
        let (verdict, reservation) = self.limiter.reserve_for(request, hold).await?;
        self.observe(request, &verdict, started);
        Ok((verdict, reservation))
    }

    /// Counts what was decided, tells the trace of the request, and notes who asked.
    pub(crate) fn observe(&self, request: &impl Request, verdict: &Verdict, started: Instant) {
        self.metrics.record(&self.limiter, verdict, started.elapsed());
        telemetry::note_decision(self, verdict, started);
        self.insight.observe(&self.limiter, verdict.rows(), request);
    }

    /// Everything that is counted, as Prometheus reads it.
    pub(crate) fn numbers(&self) -> String {
        let mut page = self.metrics.render(&self.limiter) + &self.insight.metrics();
        page.extend(self.rules.iter().map(|following| metrics::rules(following)));
        page
    }

    /// Keeps what is known of the traffic up to date, for ever.
    pub(crate) async fn watch_traffic(self: Arc<Service>) {
        self.insight.run(&self.limiter, &self.metrics).await;
    }

    /// Brings what is known of the traffic to where it is kept, when nobody watches any more.
    pub(crate) async fn end_watch(&self) {
        self.insight.finish(&self.limiter, &self.metrics).await;
    }

    /// Notes what somebody has changed by hand: who asks the audit finds it, and who looks into the log.
    pub(crate) fn changed(&self, what: &Changed<'_>, by: String) {
        let (action, rule, key) = what.named();
        let made = what.exception();
        let limit = made.and_then(|made| match &made.kind {
            ExceptionKind::Grant(grant) => Some(grant.to_string()),
            _ => None,
        });
        let action = Action {
            at: self.limiter.store().now(),
            action,
            rule: rule.into(),
            key: self.insight.shown_key(&self.limiter, rule, key),
            limit,
            until: made.and_then(|made| made.until),
            reason: made.and_then(|made| made.reason.clone()),
            by,
            instance: self.insight.instance.clone(),
        };
        let Action { key, limit, until, reason, by, .. } = &action;
        let until_ms = until.map(|until| until.as_micros() / 1_000);
        let message = what.message();
        tracing::info!(action = action.action.name(), rule, key, limit, until_ms, reason, by, "{message}");
        self.insight.actions.add(action);
    }

    /// Whether the store can decide. One in this process always can.
    pub(crate) fn is_ready(&self) -> bool {
        match self.limiter.store() {
            Store::Redis(redis) => redis.breaker() == BreakerState::Closed,
            _ => true,
        }
    }
}
