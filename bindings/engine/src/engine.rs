//! Rules over a store, for hosts that ask from their own threads.

use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use http::HeaderName;
use tokio::runtime::Handle;
use tokio::sync::Mutex as AsyncMutex;
use tollkeeper::file::Settings;
use tollkeeper::http::{Answer, AnswerStyle, Identity};
use tollkeeper::postgres::Status;
use tollkeeper::{
    Ahead, Charge, CheckError, Clock, ConnectError, Descriptor, Exception, Inspected, Limiter, NamedKey, Overloaded,
    Policy, RedisStore, Request, RuleSpec, Settlement, Store, UnreachableStore, Verdict,
};

use crate::error::{Error, Kind};
use crate::exception::{self, End};
use crate::fork;
use crate::hold::{Estimate, Slots, actual};
use crate::io::{Io, Job};
use crate::notice::Watch;
use crate::request::{Needs, Subject};
use crate::settings::{self, Given};
use crate::source::{Source, adopting};
use crate::verdict::Checked;

/// A question to an engine.
pub enum Ask {
    /// Check a request.
    Check(Subject),
    /// Check several requests, each by itself. One that is invalid refuses all of them, and nothing is charged.
    CheckMany(Vec<Descriptor>),
    /// Check a request and hold its slots.
    Acquire(Subject),
    /// Check a request at an estimated cost, to be settled within this time.
    Reserve(Subject, Option<Duration>),
    /// Settle an estimate at its actual cost.
    Settle(Estimate, Option<u32>, Vec<(String, String)>),
    /// The state of this rule's buckets for this key.
    Inspect(String, String),
    /// Reset this rule's buckets for this key.
    Reset(String, String),
    /// Make an exception for a key.
    Except(Box<Exception>, End),
    /// Lift the exception of this rule, or of `*` for every rule, and this key.
    Lift(String, NamedKey),
    /// The exceptions in force.
    Exceptions,
    /// Connect now rather than with the first request.
    Connect,
    /// Read the rules, where they come from Postgres, rather than with the first request.
    Follow,
    /// Return leased tokens: the last call before a process exits.
    Close,
}

/// An engine's answer.
pub enum Reply {
    /// To [`Ask::Check`].
    Checked(Checked),
    /// To [`Ask::CheckMany`], in order. One may have been shed while others were decided.
    CheckedMany(Vec<Result<Checked, Overloaded>>),
    /// To [`Ask::Acquire`].
    Acquired(Checked, Slots),
    /// To [`Ask::Reserve`].
    Reserved(Checked, Estimate),
    /// To [`Ask::Settle`].
    Settled(Settlement),
    /// To [`Ask::Inspect`].
    Buckets(Vec<Inspected>),
    /// To [`Ask::Reset`]: whether there was anything to reset.
    Reset(bool),
    /// To [`Ask::Except`]: as it is in force. To [`Ask::Lift`]: the one that was lifted, if there was one.
    Exception(Option<Box<Exception>>),
    /// To [`Ask::Exceptions`], by rule and key.
    Exceptions(Vec<Exception>),
    /// To the others.
    Done,
}

/// An answer, now or later.
pub enum Progress {
    /// The answer.
    Ready(Result<Reply, Error>),
    /// A server must be asked: see [`Mailbox::expect`](crate::Mailbox::expect) and [`Work::wait`].
    Pending(Work),
}

/// A call in progress.
pub struct Work {
    pub(crate) future: Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>,
    /// Whose thread it continues on, if not the I/O thread: the one that calls the server, which saves a hop there and
    /// another one back.
    pub(crate) limiter: Option<Arc<Limiter>>,
}

impl Work {
    fn new(future: Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>) -> Work {
        Work { future, limiter: None }
    }

    /// The runtime whose thread it continues on.
    pub(crate) fn runtime(limiter: &Limiter) -> Option<&Handle> {
        match limiter.store() {
            Store::Redis(redis) => Some(redis.runtime()),
            _ => None,
        }
    }

    /// Waits for it on this thread. A host with a global lock releases it for that time.
    pub fn wait(self) -> Result<Reply, Error> {
        Io::get()?.block_on(self.future)?
    }
}

/// A limiter for a host. Creating one starts no thread and opens no connection.
pub struct Engine {
    settings: Settings,
    clock: Clock,
    rules: ArcSwap<Rules>,
    /// One change of rules at a time.
    changing: Mutex<()>,
    place: Place,
    /// Where the rules come from, if not from the settings.
    source: Option<Source>,
    warnings: Vec<String>,
    watch: Watch,
}

/// The rules in force, and how requests are read for them.
struct Rules {
    specs: Vec<RuleSpec>,
    needs: Arc<Needs>,
    front: Arc<Front>,
}

/// How requests become attributes, and verdicts responses.
struct Front {
    identity: Identity,
    style: AnswerStyle,
}

/// Where decisions are made.
enum Place {
    /// In this process, on the caller's thread.
    Here(Arc<Limiter>),
    /// On a server, through the I/O thread.
    There(Mutex<Arc<Remote>>),
}

/// A connection that is made when it is first needed.
struct Remote {
    generation: u64,
    limiter: OnceLock<Arc<Limiter>>,
    /// The task that holds it connects; the others wait.
    connecting: AsyncMutex<Option<Failure>>,
}

/// A failed attempt to connect, and the limiter that answers until the next one.
#[derive(Clone)]
struct Failure {
    at: Instant,
    error: Error,
    rules: Arc<Rules>,
    meanwhile: Arc<Limiter>,
}

/// How long to wait before connecting again. Requests are answered by their rules' failure policies in the meantime.
const CONNECT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long the first request waits for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

impl Remote {
    fn new() -> Arc<Remote> {
        let connecting = AsyncMutex::new(None);
        Arc::new(Remote { generation: fork::generation(), limiter: OnceLock::new(), connecting })
    }
}

impl Engine {
    /// From code: JSON in the shape of the rules file.
    pub fn from_json(text: &str, clock: Clock) -> Result<Arc<Engine>, Error> {
        Engine::new(settings::from_json(text)?, clock)
    }

    /// From a rules file; `store` overrides the URL in it.
    pub fn from_file(path: &Path, store: Option<&str>, clock: Clock) -> Result<Arc<Engine>, Error> {
        let Given { settings, warnings } = settings::from_file(path, store)?;
        Engine::with_warnings(settings, warnings, clock)
    }

    /// From settings.
    pub fn new(settings: Settings, clock: Clock) -> Result<Arc<Engine>, Error> {
        let warnings = settings::warnings(&settings);
        Engine::with_warnings(settings, warnings, clock)
    }

    fn with_warnings(mut settings: Settings, warnings: Vec<String>, clock: Clock) -> Result<Arc<Engine>, Error> {
        fork::watch();
        let specs = std::mem::take(&mut settings.rules);
        let policy = understood(&specs)?;
        let source = Source::of(&settings)?;
        let place = if settings.is_memory() {
            let store = settings.memory_store(clock.clone()).map_err(Error::from)?;
            Place::Here(Arc::new(Limiter::new(policy, store)))
        } else {
            Place::There(Mutex::new(Remote::new()))
        };
        let rules = ArcSwap::from_pointee(Rules::new(specs, &settings)?);
        let (changing, watch) = (Mutex::default(), Watch::default());
        Ok(Arc::new(Engine { settings, clock, rules, changing, place, source, warnings, watch }))
    }

    /// Replaces the rules by a JSON list. Returns warnings, as [`Engine::warnings`], that the settings did not cause before.
    pub fn replace_rules(&self, json: &str) -> Result<Vec<String>, Error> {
        self.refuse_change()?;
        let rules = settings::rules_from_json(json)?;
        let warnings = settings::warnings(&Settings { rules: rules.clone(), ..self.settings.clone() });
        self.replace(rules)?;
        Ok(self.new_among(warnings))
    }

    /// Replaces the rules by those of a file, and ignores its other settings. Returns warnings as [`Engine::replace_rules`].
    pub fn replace_rules_from_file(&self, path: &Path) -> Result<Vec<String>, Error> {
        self.refuse_change()?;
        let Given { settings, warnings } = settings::from_file(path, None)?;
        self.replace(settings.rules)?;
        Ok(self.new_among(warnings))
    }

    /// Warnings that have not been reported when the engine was made.
    fn new_among(&self, mut warnings: Vec<String>) -> Vec<String> {
        warnings.retain(|warning| !self.warnings.contains(warning));
        warnings
    }

    fn refuse_change(&self) -> Result<(), Error> {
        match &self.source {
            Some(_) => Err(Error::new(Kind::Usage, "the rules come from Postgres (rules_from); change them there")),
            None => Ok(()),
        }
    }

    /// Puts rules that were followed in force.
    fn adopt(&self, policy: Policy) -> Result<(), Error> {
        self.replace(policy.rules().iter().map(|rule| rule.spec().clone()).collect())
    }

    /// Whether rules come from Postgres, and so may change at any time.
    pub fn follows(&self) -> bool {
        self.source.is_some()
    }

    /// Whether rules come from Postgres and this process has not read any yet: see [`Ask::Follow`]. Until then
    /// [`Engine::needs`] says nothing.
    pub fn lacks_rules(&self) -> bool {
        self.source.as_ref().is_some_and(|source| !source.is_known())
    }

    /// Which version of the rules in Postgres is in force, and why there is no newer one. Nothing if they come from elsewhere,
    /// or before they were read.
    pub fn rules_status(&self) -> Option<Status> {
        self.source.as_ref()?.status()
    }

    fn replace(&self, specs: Vec<RuleSpec>) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = understood(&specs)?;
        self.rules.store(Arc::new(Rules::new(specs, &self.settings)?));
        let limiter = match &self.place {
            Place::Here(limiter) => Some(limiter.clone()),
            Place::There(_) => self.remote().limiter.get().cloned(),
        };
        match limiter {
            // The I/O thread returns the leases of the old rules.
            Some(limiter) if self.is_remote() => drop(Io::get()?.within(|| limiter.replace_policy(policy))),
            Some(limiter) => drop(limiter.replace_policy(policy)),
            None => {}
        }
        Ok(())
    }

    /// The rules in force, as JSON.
    pub fn rules_json(&self) -> String {
        serde_json::to_string(&self.rules.load().specs).unwrap_or_default()
    }

    /// Which parts of a request the rules in force look at.
    pub fn needs(&self) -> Arc<Needs> {
        self.rules.load().needs.clone()
    }

    /// The names of the limit headers.
    pub fn header_names(&self) -> &'static [&'static str] {
        self.rules.load().front.style.headers.names()
    }

    /// Settings that are valid but probably mistakes, for the host to report when it makes a limiter.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The headers that a host passes beside those in [`Needs`]: they reveal a proxy that is missing in
    /// `trusted_proxies`. Ask for each request.
    pub fn watched_headers(&self) -> &'static [HeaderName] {
        if self.rules.load().needs.address { self.watch.headers() } else { &[] }
    }

    /// The same for every request, for hosts that choose a sample themselves. Empty when there is nothing left to find.
    pub fn forwarding_headers(&self) -> &'static [HeaderName] {
        if self.rules.load().needs.address { self.watch.all_headers() } else { &[] }
    }

    /// What an operator should know, found in the requests so far; each text once.
    pub fn take_notice(&self) -> Option<String> {
        self.watch.take()
    }

    /// Whether answers may come from a server.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::There(_))
    }

    /// Whether forwarding headers of some proxies are trusted.
    pub fn trusts_proxies(&self) -> bool {
        !self.settings.trusted_proxies.is_empty()
    }

    /// Whether this process has connected to a server.
    pub fn is_connected(&self) -> bool {
        self.is_remote() && self.remote().limiter.get().is_some()
    }

    /// Answers now if no server has to be asked.
    pub fn ask(self: &Arc<Self>, ask: Ask) -> Progress {
        if let Ask::Check(Subject::Http(head)) | Ask::Acquire(Subject::Http(head)) = &ask {
            let rules = self.rules.load();
            if rules.needs.address {
                self.watch.look(&rules.front.identity, head);
            }
        }
        if let Some(source) = &self.source
            && !source.is_followed()
        {
            if !source.is_known() || matches!(ask, Ask::Follow) {
                return self.ask_after_rules(ask);
            }
            // A forked process has the rules of its parent meanwhile.
            if source.take_turn()
                && let Ok(io) = Io::get()
            {
                let engine = self.clone();
                let follow: Job = Box::pin(async move {
                    let _ = engine.follow().await;
                    engine.source.iter().for_each(Source::give_turn_back);
                });
                io.submit([follow]);
            }
        }
        self.ask_now(ask)
    }

    /// The rules have to be read first.
    fn ask_after_rules(self: &Arc<Self>, ask: Ask) -> Progress {
        let engine = self.clone();
        Progress::Pending(Work::new(Box::pin(async move {
            engine.follow().await?;
            match engine.ask_now(ask) {
                Progress::Ready(reply) => reply,
                Progress::Pending(work) => work.future.await,
            }
        })))
    }

    async fn follow(self: &Arc<Self>) -> Result<(), Error> {
        match &self.source {
            Some(source) => source.follow(adopting(self, Engine::adopt)).await,
            None => Ok(()),
        }
    }

    /// Decides a request, described by attributes, now if no server has to be asked. `None` if there is no limiter yet: ask with
    /// [`Ask::Check`] then.
    pub fn check(self: &Arc<Self>, request: &impl Request) -> Option<Progress> {
        if self.source.as_ref().is_some_and(|source| !source.is_followed()) {
            return None;
        }
        let limiter = self.limiter()?;
        let style = self.rules.load().front.style.clone();
        Some(self.check_by(limiter, style, request))
    }

    /// The limiter of this process, if it has connected.
    fn limiter(&self) -> Option<Arc<Limiter>> {
        match &self.place {
            Place::Here(limiter) => Some(limiter.clone()),
            Place::There(remote) => {
                let remote = remote.lock().unwrap_or_else(PoisonError::into_inner);
                // A forked process has none yet.
                let limiter = remote.limiter.get().filter(|_| remote.generation == fork::generation());
                limiter.cloned()
            }
        }
    }

    /// The request is only looked at here: what has to be asked of a server are its charges.
    fn check_by(self: &Arc<Self>, limiter: Arc<Limiter>, style: AnswerStyle, request: &impl Request) -> Progress {
        let charges = match limiter.check_ahead(request) {
            Ok(Ahead::Decided(verdict)) => return Progress::Ready(Ok(checked(verdict, &limiter, style))),
            Ok(Ahead::Open(charges)) => charges,
            Err(error) => return Progress::Ready(Err(error.into())),
        };
        if !self.is_remote() {
            return at_once(decided(limiter, charges, style));
        }
        match Io::get() {
            Ok(io) => started(&io, Box::pin(decided(limiter.clone(), charges, style)), Some(limiter)),
            Err(error) => Progress::Ready(Err(error)),
        }
    }

    fn ask_now(self: &Arc<Self>, ask: Ask) -> Progress {
        if let Ask::Check(subject) = &ask
            && let Some(limiter) = self.limiter()
        {
            let front = self.rules.load().front.clone();
            let is_fine = match subject {
                Subject::Attributes(request) => known_rules(&limiter, request),
                Subject::Http(head) => front.refuse(&limiter, head),
            };
            return match (is_fine, subject) {
                (Err(error), _) => Progress::Ready(Err(error)),
                (Ok(()), Subject::Attributes(request)) => self.check_by(limiter, front.style.clone(), request),
                (Ok(()), Subject::Http(head)) => {
                    self.check_by(limiter, front.style.clone(), &head.describe(&front.identity))
                }
            };
        }
        match &self.place {
            Place::Here(limiter) => {
                let (front, limiter) = (self.rules.load().front.clone(), limiter.clone());
                at_once(answer(front, limiter, None, ask))
            }
            Place::There(_) => self.ask_there(ask).unwrap_or_else(|error| Progress::Ready(Err(error))),
        }
    }

    fn ask_there(self: &Arc<Self>, ask: Ask) -> Result<Progress, Error> {
        let (remote, io) = (self.remote(), Io::get()?);
        let front = self.rules.load().front.clone();
        let limiter = remote.limiter.get().cloned();
        // Its requests must be polled where calls are made: later only those that were woken are polled again.
        let is_batch = matches!(ask, Ask::CheckMany(_));
        let work: Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>> = match &limiter {
            Some(limiter) => Box::pin(answer(front, limiter.clone(), Some(io.clone()), ask)),
            None => {
                let (engine, io) = (self.clone(), io.clone());
                Box::pin(async move {
                    let limiter = match ask {
                        Ask::Connect => engine.reach(&remote).await.map_err(|failure| failure.error)?,
                        _ => engine.connected(&remote).await?,
                    };
                    answer(front, limiter, Some(io), ask).await
                })
            }
        };
        if is_batch {
            return Ok(Progress::Pending(Work { future: work, limiter }));
        }
        Ok(started(&io, work, limiter))
    }

    /// The connection of this process.
    fn remote(&self) -> Arc<Remote> {
        let Place::There(remote) = &self.place else { return Remote::new() };
        let mut remote = remote.lock().unwrap_or_else(PoisonError::into_inner);
        if remote.generation != fork::generation() {
            // The parent's connections must not be used here, and its locks may be held forever.
            std::mem::forget(std::mem::replace(&mut *remote, Remote::new()));
        }
        remote.clone()
    }

    /// The limiter, connected if necessary; if the server is unreachable, one that answers by failure policies.
    async fn connected(self: &Arc<Self>, remote: &Arc<Remote>) -> Result<Arc<Limiter>, Error> {
        match self.reach(remote).await {
            Ok(limiter) => Ok(limiter),
            Err(Failure { meanwhile, rules, error, .. }) if error.kind == Kind::Unreachable => {
                let current = self.rules.load_full();
                if !Arc::ptr_eq(&current, &rules) {
                    meanwhile.replace_policy(understood(&current.specs)?);
                }
                Ok(meanwhile)
            }
            Err(Failure { error, .. }) => Err(error),
        }
    }

    /// The first attempt is waited for. Later ones run in the background, so that requests are answered in the
    /// meantime.
    async fn reach(self: &Arc<Self>, remote: &Arc<Remote>) -> Result<Arc<Limiter>, Failure> {
        let mut last = remote.connecting.lock().await;
        if let Some(limiter) = remote.limiter.get() {
            return Ok(limiter.clone());
        }
        let Some(failure) = &mut *last else {
            return self.attempt(remote).await.map_err(|error| last.insert(self.failed(error)).clone());
        };
        if failure.at.elapsed() >= CONNECT_AGAIN_AFTER {
            failure.at = Instant::now();
            let (engine, remote) = (self.clone(), remote.clone());
            tokio::spawn(async move {
                if let Err(error) = engine.attempt(&remote).await
                    && let Some(failure) = &mut *remote.connecting.lock().await
                {
                    (failure.at, failure.error) = (Instant::now(), error);
                }
            });
        }
        Err(failure.clone())
    }

    async fn attempt(&self, remote: &Remote) -> Result<Arc<Limiter>, Error> {
        let late = || Error::new(Kind::Unreachable, format!("cannot connect: no answer within {CONNECT_WITHIN:?}"));
        let store = tokio::time::timeout(CONNECT_WITHIN, self.connect()).await.map_err(|_| late())??;
        let policy = understood(&self.rules.load().specs)?;
        Ok(remote.limiter.get_or_init(|| Arc::new(Limiter::new(policy, store))).clone())
    }

    fn failed(&self, error: Error) -> Failure {
        let rules = self.rules.load_full();
        let store = UnreachableStore::new(error.message.clone(), self.clock.clone());
        // These rules were validated before.
        let meanwhile = Arc::new(Limiter::new(understood(&rules.specs).unwrap_or_default(), store));
        Failure { at: Instant::now(), error, rules, meanwhile }
    }

    async fn connect(&self) -> Result<RedisStore, Error> {
        let options = self.settings.redis_options(self.clock.clone())?;
        RedisStore::connect(&self.settings.store.url, options).await.map_err(|error| match error {
            ConnectError::Connect(_) | ConnectError::Incomplete(_) => Error::new(Kind::Unreachable, error),
            // Retrying would not help.
            error => Error::new(Kind::Store, error),
        })
    }
}

impl Rules {
    fn new(specs: Vec<RuleSpec>, settings: &Settings) -> Result<Rules, Error> {
        let front = Front { identity: settings.identity_for(&specs)?, style: settings.answer_style()? };
        Ok(Rules { needs: Arc::new(Needs::of(&specs, settings)), front: Arc::new(front), specs })
    }
}

fn understood(specs: &[RuleSpec]) -> Result<Policy, Error> {
    Policy::new(specs.iter().cloned()).map_err(|errors| Error::new(Kind::Rule, errors))
}

/// The answer of the memory store, which never waits.
fn at_once(answer: impl Future<Output = Result<Reply, Error>>) -> Progress {
    Progress::Ready(match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => reply,
        Poll::Pending => Err(Error::new(Kind::Usage, "the memory store kept a caller waiting")),
    })
}

/// Polls work once on this thread, without calls to a server: those of many callers go out together later.
fn started(
    io: &Io,
    mut work: Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>,
    limiter: Option<Arc<Limiter>>,
) -> Progress {
    match RedisStore::without_calls(|| io.poll_once(work.as_mut())) {
        Poll::Ready(reply) => Progress::Ready(reply),
        Poll::Pending => Progress::Pending(Work { future: work, limiter }),
    }
}

async fn decided(limiter: Arc<Limiter>, charges: Vec<Charge>, style: AnswerStyle) -> Result<Reply, Error> {
    let verdict = limiter.check_charges(charges).await?;
    Ok(checked(verdict, &limiter, style))
}

fn checked(verdict: Verdict, limiter: &Limiter, style: AnswerStyle) -> Reply {
    Reply::Checked(Checked { verdict: Arc::new(verdict), now: limiter.store().now(), style })
}

/// Asks the library. `io` is there if slots and estimates are kept by a server.
async fn answer(front: Arc<Front>, limiter: Arc<Limiter>, io: Option<Arc<Io>>, ask: Ask) -> Result<Reply, Error> {
    let checked =
        |verdict| Checked { verdict: Arc::new(verdict), now: limiter.store().now(), style: front.style.clone() };
    if let Ask::Check(subject) | Ask::Acquire(subject) | Ask::Reserve(subject, _) = &ask
        && let Subject::Attributes(request) = subject
    {
        known_rules(&limiter, request)?;
    }
    match ask {
        Ask::Check(Subject::Attributes(request)) => Ok(Reply::Checked(checked(limiter.check(&request).await?))),
        Ask::Check(Subject::Http(head)) => {
            front.refuse(&limiter, &head)?;
            Ok(Reply::Checked(checked(limiter.check(&head.describe(&front.identity)).await?)))
        }
        Ask::CheckMany(requests) => {
            require_valid(&limiter, &requests)?;
            // Concurrently: a shared store is asked for many at a time.
            let decided = join_all(requests.iter().map(|request| limiter.check(request))).await;
            let each = decided.into_iter().map(|decided| match decided {
                Ok(verdict) => Ok(Ok(checked(verdict))),
                Err(CheckError::Overloaded(overloaded)) => Ok(Err(overloaded)),
                Err(error) => Err(error.into()),
            });
            each.collect::<Result<_, Error>>().map(Reply::CheckedMany)
        }
        Ask::Acquire(subject) => {
            let (verdict, permit) = match &subject {
                Subject::Attributes(request) => limiter.acquire(request).await?,
                Subject::Http(head) => {
                    front.refuse(&limiter, head)?;
                    limiter.acquire(&head.describe(&front.identity)).await?
                }
            };
            Ok(Reply::Acquired(checked(verdict), Slots::new(permit)))
        }
        Ask::Reserve(subject, hold) => {
            let hold = hold.unwrap_or(Duration::from_secs(600));
            let (verdict, reservation) = match &subject {
                Subject::Attributes(request) => limiter.reserve_for(request, hold).await?,
                Subject::Http(head) => {
                    front.refuse(&limiter, head)?;
                    limiter.reserve_for(&head.describe(&front.identity), hold).await?
                }
            };
            Ok(Reply::Reserved(checked(verdict), Estimate::new(reservation, io)))
        }
        Ask::Settle(estimate, cost, attributes) => {
            let gone =
                || Error::new(Kind::Usage, "the reservation was made by the process that this one was forked from");
            let reservation = estimate.take().ok_or_else(gone)?;
            Ok(Reply::Settled(reservation.settle(actual(cost, attributes)).await?))
        }
        Ask::Inspect(rule, key) => match limiter.inspect(&rule, &key).await {
            Some(buckets) => Ok(Reply::Buckets(buckets?)),
            None => Err(no_rule(&rule)),
        },
        Ask::Reset(rule, key) => {
            let policy = limiter.policy();
            let template = policy.rule(&rule).ok_or_else(|| no_rule(&rule))?.key();
            let bucket = template.bucket_of(&key.into()).map_err(|unclear| Error::new(Kind::Usage, unclear))?;
            match limiter.reset(&rule, &bucket).await {
                Some(had_state) => Ok(Reply::Reset(had_state?)),
                None => Err(no_rule(&rule)),
            }
        }
        Ask::Except(exception, end) => {
            Ok(Reply::Exception(Some(Box::new(exception::except(&limiter, *exception, end).await?))))
        }
        Ask::Lift(rule, key) => Ok(Reply::Exception(exception::lift(&limiter, &rule, key).await?.map(Box::new))),
        Ask::Exceptions => Ok(Reply::Exceptions(limiter.exceptions())),
        Ask::Connect | Ask::Follow => Ok(Reply::Done),
        Ask::Close => {
            if let Store::Redis(redis) = limiter.store() {
                redis.leave().await;
            }
            Ok(Reply::Done)
        }
    }
}

/// A batch is refused before its first request is charged, or not at all.
fn require_valid(limiter: &Limiter, requests: &[Descriptor]) -> Result<(), Error> {
    let at = |index: usize, error: Error| Error { message: format!("requests[{index}]: {}", error.message), ..error };
    let policy = limiter.policy();
    let has_costs = policy.rules().iter().any(|rule| rule.cost().is_carried());
    for (index, request) in requests.iter().enumerate() {
        known_rules(limiter, request).map_err(|error| at(index, error))?;
        if has_costs {
            policy.charges(request).map_err(|error| at(index, error.into()))?;
        }
    }
    Ok(())
}

/// A misspelled rule name would let every request pass.
fn known_rules(limiter: &Limiter, request: &Descriptor) -> Result<(), Error> {
    let Some(names) = request.rules() else { return Ok(()) };
    if names.is_empty() {
        return Err(Error::new(Kind::Usage, "rules: is empty; name a rule, or leave it out for all rules"));
    }
    let policy = limiter.policy();
    names.iter().find(|name| policy.rule(name).is_none()).map_or(Ok(()), |name| Err(no_rule(name)))
}

fn no_rule(name: &str) -> Error {
    Error::new(Kind::Usage, format!("there is no rule `{name}`"))
}

impl Front {
    /// Refuses requests with two identities, or without an address where a rule needs one.
    fn refuse(&self, limiter: &Limiter, head: &crate::request::Head) -> Result<(), Error> {
        if let Some(place) = self.identity.contradiction(&head.uri, &head.headers) {
            let message = format!("`{place}` occurs several times with different values");
            return Err(Error::refused(Kind::Request, message, Answer::contradiction(place)));
        }
        if head.peer.is_none() {
            let request = head.describe(&self.identity);
            // This does not charge anything. A rule without an address must not look like one that is enforced.
            limiter.charges(std::slice::from_ref(&request))?;
            if request.lacks_address.load(Relaxed) {
                return Err(Error::new(
                    Kind::Address,
                    "a rule limits by `ip`, but the server does not provide the client's address (a Unix socket?); make \
                     the server provide it, or limit by something else, such as header.x-api-key",
                ));
            }
        }
        Ok(())
    }
}
