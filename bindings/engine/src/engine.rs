//! Rules over a store, for hosts that ask from their own threads.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderName;
use tollkeeper::file::Settings;
use tollkeeper::postgres::Status;
use tollkeeper::{Ahead, Clock, Limiter, Policy, Request, RuleSpec};

use crate::answer::{answer, checked, decided, known_rules};
use crate::ask::{Answering, Ask, Progress, Work};
use crate::error::{Error, Kind};
use crate::fork;
use crate::io::{Io, Job};
use crate::log;
use crate::notice::Watch;
use crate::remote::{Remote, Setup};
use crate::request::{Head, Needs, Subject};
use crate::rules::{self, Front, Rules};
use crate::settings::{self, Given};
use crate::source::{Source, adopting};

/// How long a response may take if the request may not count. Stores keep a record of refunds for each client for that long.
const RESPONSE_WITHIN: Duration = Duration::from_secs(60);

/// A limiter for a host. Creating one starts no thread and opens no connection.
pub struct Engine {
    setup: Arc<Setup>,
    /// One change of rules at a time.
    changing: Mutex<()>,
    place: Place,
    /// Where the rules come from, if not from the settings.
    source: Option<Source>,
    warnings: Vec<String>,
    watch: Watch,
}

/// Where decisions are made.
enum Place {
    /// In this process, on the caller's thread.
    Here(Arc<Limiter>),
    /// On a server, through the I/O thread.
    There(Mutex<Arc<Remote>>),
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
        let policy = rules::policy(&specs)?;
        let source = Source::of(&settings)?;
        let rules = ArcSwap::from_pointee(Rules::new(specs, &settings)?);
        let setup = Arc::new(Setup { settings, clock, rules });
        let place = if setup.settings.is_memory() {
            let store = setup.settings.memory_store(setup.clock.clone()).map_err(Error::from)?;
            Place::Here(Arc::new(Limiter::new(policy, store)))
        } else {
            Place::There(Mutex::new(Remote::new(setup.clone())))
        };
        let (changing, watch) = (Mutex::default(), Watch::default());
        let engine = Arc::new(Engine { setup, changing, place, source, warnings, watch });
        if engine.uses_network() {
            log::listen();
        }
        Ok(engine)
    }

    /// Replaces the rules by a JSON list. Returns warnings, as [`Engine::warnings`], that the settings did not cause before.
    pub fn replace_rules(&self, json: &str) -> Result<Vec<String>, Error> {
        self.refuse_change()?;
        let rules = settings::rules_from_json(json)?;
        let warnings = settings::warnings(&Settings { rules: rules.clone(), ..self.setup.settings.clone() });
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

    /// Puts rules that were followed in force, on the I/O thread.
    fn adopt(&self, policy: Policy) -> Result<(), Error> {
        let specs = policy.rules().iter().map(|rule| rule.spec().clone()).collect();
        fork::still(|| self.replace(specs))
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
        let policy = rules::policy(&specs)?;
        self.setup.rules.store(Arc::new(Rules::new(specs, &self.setup.settings)?));
        let limiter = match &self.place {
            Place::Here(limiter) => Some(limiter.clone()),
            Place::There(_) => self.remote().limiter().cloned(),
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
        serde_json::to_string(&self.setup.rules.load().specs).unwrap_or_default()
    }

    /// Which parts of a request the rules in force look at.
    pub fn needs(&self) -> Arc<Needs> {
        self.setup.rules.load().needs.clone()
    }

    /// The names of the limit headers.
    pub fn header_names(&self) -> &'static [&'static str] {
        self.setup.rules.load().front.style.headers.names()
    }

    /// Settings that are valid but probably mistakes, for the host to report when it makes a limiter.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The headers that a host passes beside those in [`Needs`]: they reveal a proxy that is missing in
    /// `trusted_proxies`. Ask for each request.
    pub fn watched_headers(&self) -> &'static [HeaderName] {
        if self.setup.rules.load().needs.address { self.watch.headers() } else { &[] }
    }

    /// The same for every request, for hosts that choose a sample themselves. Empty when there is nothing left to find.
    pub fn forwarding_headers(&self) -> &'static [HeaderName] {
        if self.setup.rules.load().needs.address { self.watch.all_headers() } else { &[] }
    }

    /// The name of a header. Of those that rules need a copy is cheaper than making it.
    pub fn header_name(&self, name: &[u8]) -> Option<HeaderName> {
        let rules = self.setup.rules.load();
        let needed = rules.needs.headers.iter().find(|needed| needed.as_str().as_bytes() == name);
        needed.cloned().or_else(|| HeaderName::from_bytes(name).ok())
    }

    /// What an operator should know, found in the requests so far; each text once.
    pub fn take_notice(&self) -> Option<String> {
        self.watch.take()
    }

    /// Whether [`take_lines`](crate::take_lines) has something to report. Never for a limiter in memory.
    pub fn has_lines(&self) -> bool {
        self.uses_network() && log::has_lines()
    }

    fn uses_network(&self) -> bool {
        self.is_remote() || self.follows()
    }

    /// Whether answers may come from a server.
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::There(_))
    }

    /// Whether forwarding headers of some proxies are trusted.
    pub fn trusts_proxies(&self) -> bool {
        !self.setup.settings.trusted_proxies.is_empty()
    }

    /// Whether this process has connected to a server.
    pub fn is_connected(&self) -> bool {
        self.is_remote() && self.remote().limiter().is_some()
    }

    /// Answers now if no server has to be asked.
    pub fn ask(self: &Arc<Self>, ask: Ask) -> Progress {
        if let Ask::Check(Subject::Http(head))
        | Ask::Acquire(Subject::Http(head))
        | Ask::Reserve(Subject::Http(head), _) = &ask
        {
            self.look(&self.setup.rules.load(), head);
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

    /// Looks for a proxy that is missing in `trusted_proxies`.
    fn look(&self, rules: &Rules, head: &Head) {
        if rules.needs.address {
            self.watch.look(&rules.front.identity, head);
        }
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
        let limiter = self.ready_limiter()?;
        Some(self.check_by(&limiter, &self.setup.rules.load().front, request))
    }

    /// Decides an HTTP request, and holds its slots if a rule has slots. If nothing has to wait, the head is only looked at, and a host
    /// can use its memory for the next one.
    pub fn ask_http(self: &Arc<Self>, head: &mut Head) -> Progress {
        let rules = self.setup.rules.load();
        let subject = |head: &mut Head| Subject::Http(Box::new(std::mem::take(head)));
        if rules.needs.slots {
            return self.ask(Ask::Acquire(subject(head)));
        }
        let Some(limiter) = self.ready_limiter() else { return self.ask(Ask::Check(subject(head))) };
        self.look(&rules, head);
        self.check_head(&limiter, &rules.front, head)
    }

    /// The same for a request that is charged now and may turn out not to count: settling it at cost 0 gives the charge back.
    pub fn reserve_http(self: &Arc<Self>, head: &mut Head) -> Progress {
        self.ask(Ask::Reserve(Subject::Http(Box::new(std::mem::take(head))), Some(RESPONSE_WITHIN)))
    }

    /// The limiter, if it has its rules and this process has connected.
    fn ready_limiter(&self) -> Option<Arc<Limiter>> {
        if self.source.as_ref().is_some_and(|source| !source.is_followed()) {
            return None;
        }
        self.limiter()
    }

    /// The limiter of this process, if it has connected.
    fn limiter(&self) -> Option<Arc<Limiter>> {
        match &self.place {
            Place::Here(limiter) => Some(limiter.clone()),
            Place::There(remote) => {
                let remote = remote.lock().unwrap_or_else(PoisonError::into_inner);
                // A forked process has none yet.
                remote.limiter().filter(|_| !remote.is_of_parent()).cloned()
            }
        }
    }

    /// The request is only looked at here: what has to be asked of a server are its charges.
    fn check_by(self: &Arc<Self>, limiter: &Arc<Limiter>, front: &Front, request: &impl Request) -> Progress {
        let style = front.style.clone();
        let charges = match limiter.check_ahead(request) {
            Ok(Ahead::Decided(verdict)) => return Progress::Ready(Ok(checked(verdict, limiter, style))),
            Ok(Ahead::Open(charges)) => charges,
            Err(error) => return Progress::Ready(Err(error.into())),
        };
        let limiter = limiter.clone();
        if !self.is_remote() {
            return Progress::at_once(decided(limiter, charges, style));
        }
        match Io::get() {
            Ok(io) => Progress::started(&io, Box::pin(decided(limiter.clone(), charges, style)), Some(limiter)),
            Err(error) => Progress::Ready(Err(error)),
        }
    }

    fn check_head(self: &Arc<Self>, limiter: &Arc<Limiter>, front: &Front, head: &Head) -> Progress {
        match front.refuse(limiter, head) {
            Ok(()) => self.check_by(limiter, front, &head.describe(&front.identity)),
            Err(error) => Progress::Ready(Err(error)),
        }
    }

    fn ask_now(self: &Arc<Self>, ask: Ask) -> Progress {
        if let Ask::Check(subject) = &ask
            && let Some(limiter) = self.limiter()
        {
            let rules = self.setup.rules.load();
            return match subject {
                Subject::Attributes(request) => match known_rules(&limiter, request) {
                    Ok(()) => self.check_by(&limiter, &rules.front, request),
                    Err(error) => Progress::Ready(Err(error)),
                },
                Subject::Http(head) => self.check_head(&limiter, &rules.front, head),
            };
        }
        match &self.place {
            Place::Here(limiter) => {
                let (front, limiter) = (self.setup.rules.load().front.clone(), limiter.clone());
                Progress::at_once(answer(front, limiter, None, ask))
            }
            Place::There(_) => self.ask_there(ask).unwrap_or_else(|error| Progress::Ready(Err(error))),
        }
    }

    fn ask_there(self: &Arc<Self>, ask: Ask) -> Result<Progress, Error> {
        let (remote, io) = (self.remote(), Io::get()?);
        let front = self.setup.rules.load().front.clone();
        let limiter = remote.limiter().cloned();
        // Its requests must be polled where calls are made: later only those that were woken are polled again.
        let is_batch = matches!(ask, Ask::CheckMany(_));
        let work: Answering = match &limiter {
            Some(limiter) => Box::pin(answer(front, limiter.clone(), Some(io.clone()), ask)),
            None => {
                let io = io.clone();
                Box::pin(async move {
                    let limiter = match ask {
                        Ask::Connect => remote.reach().await.map_err(|failure| failure.error)?,
                        _ => remote.connected().await?,
                    };
                    answer(front, limiter, Some(io), ask).await
                })
            }
        };
        if is_batch {
            return Ok(Progress::Pending(Work { future: work, limiter }));
        }
        Ok(Progress::started(&io, work, limiter))
    }

    /// The connection of this process.
    fn remote(&self) -> Arc<Remote> {
        let fresh = || Remote::new(self.setup.clone());
        let Place::There(remote) = &self.place else { return fresh() };
        let mut remote = remote.lock().unwrap_or_else(PoisonError::into_inner);
        if remote.is_of_parent() {
            // The parent's connections must not be used here, and its locks may be held forever.
            std::mem::forget(std::mem::replace(&mut *remote, fresh()));
        }
        remote.clone()
    }
}
