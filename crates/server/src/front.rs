//! Doors to the limiter. Each is a function `run(listener, service, shutdown)` over the same [`Service`].

mod certified;
pub(crate) mod connections;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod proxy;
pub(crate) mod resp;

pub(crate) use certified::TLS_CLIENT;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tollgate::http::{AnswerStyle, Identity};
use tollgate::{BreakerState, CostError, Limiter, Permit, Policy, Request, Reservation, Store, Verdict};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::settings;
use crate::telemetry::{self, Tracer};

/// What every front serves.
#[derive(Debug)]
pub(crate) struct Service {
    /// Rules and store.
    pub(crate) limiter: Arc<Limiter>,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// How an HTTP request becomes attributes.
    pub(crate) identity: Identity,
    /// How a denied HTTP request is answered.
    pub(crate) answer: AnswerStyle,
    /// Who may see and change things.
    pub(crate) admin: Admin,
    /// What makes spans of requests, where a collector is configured.
    pub(crate) tracer: OnceLock<Tracer>,
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
    pub(crate) fn new(config: &Config, policy: Policy, store: Store, admin: Admin) -> anyhow::Result<Arc<Service>> {
        Ok(Arc::new(Service {
            limiter: Arc::new(Limiter::new(policy, store)),
            metrics: Metrics::new(),
            identity: settings::identity(config)?,
            answer: settings::answer_style(config)?,
            admin,
            tracer: OnceLock::new(),
        }))
    }

    /// Decides a request and counts what was decided.
    pub(crate) async fn check(&self, request: &impl Request) -> Result<Verdict, CostError> {
        let started = Instant::now();
        let verdict = self.limiter.check(request).await?;
        self.decided(&verdict, started);
        Ok(verdict)
    }

    /// Decides a request, counts what was decided, and keeps the slots that it occupies until the permit is dropped.
    pub(crate) async fn acquire(&self, request: &impl Request) -> Result<(Verdict, Permit), CostError> {
        let started = Instant::now();
        let (verdict, permit) = self.limiter.acquire(request).await?;
        self.decided(&verdict, started);
        Ok((verdict, permit))
    }

    /// Decides a request whose cost is an estimate, and counts what was decided.
    pub(crate) async fn reserve(&self, request: &impl Request) -> Result<(Verdict, Reservation), CostError> {
        let started = Instant::now();
        let (verdict, reservation) = self.limiter.reserve(request).await?;
        self.decided(&verdict, started);
        Ok((verdict, reservation))
    }

    /// Counts what was decided, and tells the trace of the request.
    pub(crate) fn decided(&self, verdict: &Verdict, started: Instant) {
        self.metrics.record(&self.limiter, verdict, started.elapsed());
        telemetry::note_decision(self, verdict, started);
    }

    /// Whether the store can decide. One in this process always can.
    pub(crate) fn is_ready(&self) -> bool {
        match self.limiter.store() {
            Store::Redis(redis) => redis.breaker() == BreakerState::Closed,
            _ => true,
        }
    }
}
