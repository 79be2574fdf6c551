//! A server that is connected when it is first needed, by each process for itself.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Mutex as AsyncMutex;
use tollkeeper::file::{Settings, without_password};
use tollkeeper::sparing::Sparing;
use tollkeeper::{Clock, ConnectError, Limiter, RedisStore, UnreachableStore};

use crate::error::{Error, Kind};
use crate::fork;
use crate::rules::Rules;

/// What a connection needs to know.
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) rules: ArcSwap<Rules>,
}

/// A connection that is made when it is first needed.
pub(crate) struct Remote {
    setup: Arc<Setup>,
    generation: u64,
    limiter: OnceLock<Arc<Limiter>>,
    /// The task that holds it connects; the others wait.
    connecting: AsyncMutex<Option<Failure>>,
    outage: Outage,
}

/// The lines about a server that is unreachable at start. Those about one that was connected are the library's.
struct Outage {
    attempts: Sparing,
    is_logged: AtomicBool,
}

/// A failed attempt to connect, and the limiter that answers until the next one.
#[derive(Clone)]
pub(crate) struct Failure {
    at: Instant,
    pub(crate) error: Error,
    rules: Arc<Rules>,
    meanwhile: Arc<Limiter>,
}

/// How long to wait before connecting again. Requests are answered by their rules' failure policies in the meantime.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long the first request waits for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

impl Remote {
    pub(crate) fn new(setup: Arc<Setup>) -> Arc<Remote> {
        let connecting = AsyncMutex::new(None);
        let outage = Outage { attempts: Sparing::while_failing(), is_logged: AtomicBool::new(false) };
        Arc::new(Remote { setup, generation: fork::generation(), limiter: OnceLock::new(), connecting, outage })
    }

    /// Whether it belongs to the process that this one was forked from.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.generation != fork::generation()
    }

    /// The limiter, if it has been connected.
    pub(crate) fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.limiter.get()
    }

    /// The limiter, connected if necessary; if the server is unreachable, one that answers by failure policies.
    pub(crate) async fn connected(self: &Arc<Self>) -> Result<Arc<Limiter>, Error> {
        match self.reach().await {
            Ok(limiter) => Ok(limiter),
            Err(Failure { meanwhile, rules, error, .. }) if error.kind == Kind::Unreachable => {
                let current = self.setup.rules.load_full();
                if !Arc::ptr_eq(&current, &rules) {
                    meanwhile.replace_policy(current.policy()?);
                }
                Ok(meanwhile)
            }
            Err(Failure { error, .. }) => Err(error),
        }
    }

    /// The first attempt is waited for. Later ones run in the background, so that requests are answered in the
    /// meantime.
    pub(crate) async fn reach(self: &Arc<Self>) -> Result<Arc<Limiter>, Failure> {
        let mut last = self.connecting.lock().await;
        if let Some(limiter) = self.limiter.get() {
            return Ok(limiter.clone());
        }
        let Some(failure) = &mut *last else {
            return self.attempt().await.map_err(|error| last.insert(self.failed(error)).clone());
        };
        if failure.at.elapsed() >= CONNECT_AGAIN_AFTER {
            failure.at = Instant::now();
            let remote = self.clone();
            tokio::spawn(async move {
                if let Err(error) = remote.attempt().await
                    && let Some(failure) = &mut *remote.connecting.lock().await
                {
                    (failure.at, failure.error) = (Instant::now(), error);
                }
            });
        }
        Err(failure.clone())
    }

    async fn attempt(&self) -> Result<Arc<Limiter>, Error> {
        let attempt = self.try_once().await;
        self.outage.tell(&self.setup.settings.store.url, attempt.as_ref().err());
        attempt
    }

    async fn try_once(&self) -> Result<Arc<Limiter>, Error> {
        let late = || Error::new(Kind::Unreachable, format!("cannot connect: no answer within {CONNECT_WITHIN:?}"));
        let store = tokio::time::timeout(CONNECT_WITHIN, self.connect()).await.map_err(|_| late())??;
        let policy = self.setup.rules.load().policy()?;
        Ok(self.limiter.get_or_init(|| Arc::new(Limiter::new(policy, store))).clone())
    }

    fn failed(&self, error: Error) -> Failure {
        let rules = self.setup.rules.load_full();
        let store = UnreachableStore::new(error.message.clone(), self.setup.clock.clone());
        // These rules were validated before.
        let meanwhile = Arc::new(Limiter::new(rules.policy().unwrap_or_default(), store));
        Failure { at: Instant::now(), error, rules, meanwhile }
    }

    async fn connect(&self) -> Result<RedisStore, Error> {
        let options = self.setup.settings.redis_options(self.setup.clock.clone())?;
        RedisStore::connect(&self.setup.settings.store.url, options).await.map_err(|error| match error {
            ConnectError::Connect(_) | ConnectError::Incomplete(_) => Error::new(Kind::Unreachable, error),
            // Retrying would not help.
            error => Error::new(Kind::Store, error),
        })
    }
}

impl Outage {
    /// Logs how an attempt to connect has ended. Errors that would not pass by themselves are for the caller.
    fn tell(&self, url: &str, error: Option<&Error>) {
        let address = without_password(url);
        match error {
            Some(error) if error.kind == Kind::Unreachable => {
                if let Some(left_out) = self.attempts.turn() {
                    tracing::warn!("cannot reach the store at {address} yet: {error}{left_out}");
                    self.is_logged.store(true, Relaxed);
                }
            }
            None if self.is_logged.swap(false, Relaxed) => tracing::info!("the store at {address} is reachable now"),
            _ => {}
        }
    }
}
