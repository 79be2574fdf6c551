//! The limiter: rules over a store.

mod ahead;
mod buckets;
mod decided;
mod error;
mod except;
mod rows;
mod together;

pub use ahead::Ahead;
pub use error::{CheckError, TryCheckError};
pub use together::Together;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use tollkeeper_core::{Changes, Charge, CostError, Decision, Policy, Request, Row, Rule, Source, Terms, Verdict};

use self::decided::{Decided, Undecided, in_order};
use self::together::Joined;
use crate::store::exceptions::Applied;
use crate::store::held::{Held, Reserved};
use crate::store::{MemoryStore, Overloaded, Store, StoreError};

/// Decides requests by rules that can change while it runs. Cheap to share behind an [`Arc`].
///
/// ```
/// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let rule = Rule::new("per-user").key("{user_id}").limit("2/min");
/// let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
///
/// let request = Descriptor::new([("user_id", "42")]);
/// assert!(limiter.check(&request).await?.is_allowed());
/// assert!(limiter.check(&request).await?.is_allowed());
/// let verdict = limiter.check(&request).await?;
/// assert!(!verdict.is_allowed());
/// assert_eq!(verdict.limiting().unwrap().charge.rule.name(), "per-user");
/// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Limiter {
    rules: ArcSwap<Active>,
    store: Store,
    /// The store that has taken over from one that could not be reached at first.
    reached: OnceLock<Store>,
    local: OnceLock<Store>,
    /// This instance's share of each rule's limit, by name, while the store is unreachable.
    shares: Mutex<HashMap<Arc<str>, Share>>,
    store_errors: AtomicU64,
}

/// A rule, how many instances share its limit, and one share.
#[derive(Debug)]
struct Share {
    of: Arc<Rule>,
    instances: u32,
    terms: Arc<Terms>,
}

/// A policy with counters.
#[derive(Debug)]
struct Active {
    policy: Arc<Policy>,
    /// For each requirement of the policy, how many requests did not meet it.
    lacking: Vec<AtomicU64>,
}

impl Active {
    fn new(policy: Policy) -> Arc<Active> {
        let lacking = policy.requirements().iter().map(|_| AtomicU64::new(0)).collect();
        Arc::new(Active { policy: Arc::new(policy), lacking })
    }

    /// The charges of a request; rules for which it lacks an attribute are counted.
    fn charges(&self, request: &impl Request) -> Result<Vec<Charge>, CostError> {
        let charges = self.policy.charges(request);
        // A rule that is charged lacks nothing: attributes are looked up again only if one is not.
        let all_are_charged = charges.as_ref().is_ok_and(|charges| charges.len() == self.policy.rules().len());
        if !all_are_charged {
            for requirement in self.policy.unmet(request) {
                self.lacking[requirement].fetch_add(1, Relaxed);
            }
        }
        charges
    }
}

/// A bucket as found by [`Limiter::inspect`].
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Which one, and under which quota: its rule's, or the one granted to the key.
    pub charge: Charge,
    /// Its answer to a request of cost 1; `remaining` does not include that request.
    pub decision: Decision,
}

impl Limiter {
    /// A limiter with these rules over a store.
    pub fn new(policy: Policy, store: impl Into<Store>) -> Limiter {
        let store = store.into();
        store.rules_changed(&policy);
        Limiter {
            rules: ArcSwap::new(Active::new(policy)),
            store,
            reached: OnceLock::new(),
            local: OnceLock::new(),
            shares: Mutex::default(),
            store_errors: AtomicU64::new(0),
        }
    }

    /// Uses this store for rules with `on_store_failure: local` while the store is unreachable, instead of one for a
    /// million keys.
    #[must_use]
    pub fn with_local_store(self, local: MemoryStore) -> Limiter {
        local.expect_rules(self.policy().rules().iter().map(|rule| rule.name()));
        Limiter { local: OnceLock::from(Store::from(local)), ..self }
    }

    /// The rules in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.rules.load().policy.clone()
    }

    /// Replaces the rules, and returns what changed. Requests in flight finish with the old ones.
    ///
    /// Buckets are kept by rule name and key, whatever the numbers are: missing tokens stay missing. So a waiting
    /// client passes at once when a limit is raised far enough, and no client gets a fresh burst when it is lowered.
    pub fn replace_policy(&self, policy: Policy) -> Changes {
        // One at a time: each replaces the one before.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let former = self.policy();
        let changes = Changes::between(&former, &policy);
        self.rules.store(Active::new(policy.in_place_of(&former, self.store().now())));
        shares.clear();
        drop(shares);
        let policy = self.policy();
        self.store().rules_changed(&policy);
        if let Some(local) = self.local.get() {
            local.rules_changed(&policy);
        }
        changes
    }

    /// The store: the one that it was made with, or the one that has taken over from it.
    pub fn store(&self) -> &Store {
        self.reached.get().unwrap_or(&self.store)
    }

    /// The server that an [`UnreachableStore`](crate::UnreachableStore) stands in for was reached: from now on this store
    /// decides. False if nothing was waiting for it.
    #[cfg(feature = "redis")]
    pub fn store_reached(&self, store: impl Into<Store>) -> bool {
        let store = store.into();
        store.rules_changed(&self.policy());
        matches!(self.store, Store::Unreachable(_)) && self.reached.set(store).is_ok()
    }

    /// The store in this process, if there is one: the store itself, or the one that decides while it is unreachable.
    pub fn memory(&self) -> Option<&MemoryStore> {
        [Some(self.store()), self.local.get()].into_iter().flatten().find_map(Store::as_memory)
    }

    /// How often the store could not answer.
    pub fn store_errors(&self) -> u64 {
        self.store_errors.load(Relaxed)
    }

    /// How often each rule did not apply because a request lacked an attribute that it needs.
    pub fn lacking(&self) -> Vec<(Arc<Rule>, u64)> {
        let active = self.rules.load();
        let counts = active.policy.requirements().iter().zip(&active.lacking);
        counts
            .flat_map(|(requirement, count)| {
                let count = count.load(Relaxed);
                requirement.rules.iter().map(move |position| (*position, count))
            })
            .map(|(position, count)| (active.policy.rules()[position].clone(), count))
            .collect()
    }

    /// Decides a request. If the store cannot answer, each rule's failure policy does, and the verdict says so.
    ///
    /// # Errors
    ///
    /// If an attribute that should carry a cost is not a number, or if the request was shed because too many wait for
    /// a shared store. Nothing was charged then, and it was neither allowed nor denied.
    pub async fn check(&self, request: &impl Request) -> Result<Verdict, CheckError> {
        let charges = self.rules.load().charges(request)?;
        self.check_charges(charges).await
    }

    /// Decides a request if that takes no call. It never waits and needs no runtime.
    ///
    /// ```
    /// use tollkeeper::{Ahead, Descriptor, Limiter, MemoryStore, Policy, Rule};
    ///
    /// let policy = Policy::new([Rule::new("per-user").key("{user_id}").limit("2/min")])?;
    /// let limiter = Limiter::new(policy, MemoryStore::new());
    /// match limiter.check_ahead(&Descriptor::new([("user_id", "42")]))? {
    ///     Ahead::Decided(verdict) => assert!(verdict.is_allowed()),
    ///     Ahead::Open(charges) => drop(limiter.check_charges(charges)), // to be awaited
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_ahead(&self, request: &impl Request) -> Result<Ahead, CostError> {
        let charges = self.rules.load().charges(request)?;
        // Exceptions are applied elsewhere.
        if !self.store().exceptions().is_empty() {
            return Ok(Ahead::Open(charges));
        }
        let Some(decisions) = self.store().charge_ahead(&charges) else { return Ok(Ahead::Open(charges)) };
        let rows = charges.into_iter().zip(decisions);
        let rows = rows.map(|(charge, (decision, source))| Row::decided(charge, decision, source)).collect();
        Ok(Ahead::Decided(Verdict::new(rows)))
    }

    /// Decides the charges of a request as [`Limiter::check`] does.
    pub async fn check_charges(&self, charges: Vec<Charge>) -> Result<Verdict, CheckError> {
        Ok(Verdict::new(self.decide(charges).await?))
    }

    /// Decides a request without `async`, on a memory store. A shared store has to be awaited, so it is refused.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};
    ///
    /// let rules = [Rule::new("per-user").key("{user_id}").limit("2/min")];
    /// let limiter = Limiter::new(Policy::new(rules)?, MemoryStore::new());
    /// let verdict = limiter.try_check(&Descriptor::new([("user_id", "42")]))?;
    /// assert!(verdict.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_check(&self, request: &impl Request) -> Result<Verdict, TryCheckError> {
        if !matches!(self.store(), Store::Memory(_)) {
            return Err(TryCheckError::SharedStore);
        }
        let check = pin!(self.check(request));
        match check.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(checked) => Ok(checked?),
            // The memory store never waits, nor does the local one behind it.
            Poll::Pending => Err(TryCheckError::SharedStore),
        }
    }

    /// Decides several requests that pass or fail together: one enforced denial, and nothing is charged for any.
    ///
    /// ```
    /// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let rule = Rule::new("per-user").key("{user_id}").limit("1/min");
    /// let limiter = Limiter::new(Policy::new([rule]).expect("valid"), MemoryStore::new());
    /// let (one, two) = (Descriptor::new([("user_id", "1")]), Descriptor::new([("user_id", "2")]));
    ///
    /// assert!(limiter.check(&one).await?.is_allowed());
    /// let denied = limiter.check_all(&[two.clone(), one]).await?;
    /// assert!(!denied.whole.is_allowed());
    /// assert!(denied.parts[0].is_allowed() && !denied.parts[1].is_allowed());
    /// assert!(limiter.check(&two).await?.is_allowed(), "it was not charged");
    /// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
    /// ```
    pub async fn check_all(&self, requests: &[impl Request]) -> Result<Together, CheckError> {
        Ok(self.charge_all(self.charges(requests)?).await?)
    }

    /// The charges of each request under the rules in force, to be decided by [`Limiter::charge_all`]: for callers
    /// that want to change them first.
    pub fn charges(&self, requests: &[impl Request]) -> Result<Vec<Vec<Charge>>, CostError> {
        let active = self.rules.load();
        requests.iter().map(|request| active.charges(request)).collect()
    }

    /// Decides the charges of several requests, all or nothing. Charges of the same bucket are added up.
    pub async fn charge_all(&self, requests: Vec<Vec<Charge>>) -> Result<Together, Overloaded> {
        match together::join(requests) {
            Joined::Single(charges) => Ok(Together::single(self.decide(charges).await?)),
            Joined::Several(charges, parts) => Ok(Together::new(self.decide(charges).await?, parts)),
        }
    }

    /// One row per charge, from the store or from its failure policies.
    async fn decide(&self, charges: Vec<Charge>) -> Result<Vec<Row>, Overloaded> {
        match self.decide_now(charges) {
            Ok(rows) => Ok(rows),
            // Boxed, because it is large: what awaits a decision stays small, and is cheap to move.
            Err(charges) => Box::pin(self.decide_later(charges)).await,
        }
    }

    /// Decides in memory, if there is room for all charges and nothing but their rules applies to them; otherwise nothing is
    /// charged, and they are returned.
    fn decide_now(&self, charges: Vec<Charge>) -> Result<Vec<Row>, Vec<Charge>> {
        if charges.is_empty() {
            return Ok(Vec::new());
        }
        let Some(memory) = self.store().as_memory() else { return Err(charges) };
        if !memory.exceptions().is_empty() || charges.iter().any(|charge| charge.rule.is_quota()) {
            return Err(charges);
        }
        let row = |charge, decision| Row::decided(charge, decision, Source::Store);
        if let [charge] = charges.as_slice() {
            let Ok(decision) = memory.charge_one(charge) else { return Err(charges) };
            return Ok(charges.into_iter().map(|charge| row(charge, decision)).collect());
        }
        let Ok(decisions) = memory.charge(&charges) else { return Err(charges) };
        Ok(charges.into_iter().zip(decisions).map(|(charge, decision)| row(charge, decision)).collect())
    }

    async fn decide_later(&self, charges: Vec<Charge>) -> Result<Vec<Row>, Overloaded> {
        if self.store().exceptions().is_empty() {
            return self.decide_open(charges).await;
        }
        Box::pin(self.decide_with_exceptions(charges)).await
    }

    async fn decide_with_exceptions(&self, charges: Vec<Charge>) -> Result<Vec<Row>, Overloaded> {
        match self.excepted(charges) {
            Excepted::Denied(rows) => Ok(rows),
            Excepted::Open(Applied { open, settled }) => {
                let (positions, charges): (Vec<usize>, Vec<Charge>) = open.into_iter().unzip();
                let decided = self.decide_open(charges).await?;
                Ok(in_order(positions.into_iter().zip(decided).chain(settled).collect()))
            }
        }
    }

    /// Decides charges that no exception has decided.
    async fn decide_open(&self, charges: Vec<Charge>) -> Result<Vec<Row>, Overloaded> {
        match self.rows(self.store(), Source::Store, charges).await {
            Ok(rows) => Ok(rows),
            Err(Undecided::Unavailable(charges)) => Box::pin(self.rows_without_store(charges)).await,
            Err(Undecided::Overloaded(overloaded)) => Err(overloaded),
        }
    }

    /// Applies exceptions, and returns what is left to decide.
    fn excepted(&self, charges: Vec<Charge>) -> Excepted {
        let Applied { open, settled } = self.store().exceptions().apply(charges, self.store().now());
        let decided = Decided::of(settled.iter().map(|(_, row)| row));
        if !decided.denies(open.iter().map(|(_, charge)| charge)) {
            let open = open.into_iter().map(|(position, charge)| (position, decided.applied_to(charge))).collect();
            return Excepted::Open(Applied { open, settled });
        }
        // The request is denied anyway: the other rules are not asked, so nothing is charged.
        let unasked = open.into_iter().map(|(position, charge)| (position, Row::unasked(charge)));
        Excepted::Denied(in_order(unasked.chain(settled).collect()))
    }

    /// Like [`Limiter::decide`] for charges that are estimates, with what is needed to settle them.
    pub(crate) async fn decide_estimate(
        &self,
        charges: Vec<Charge>,
        hold: Duration,
    ) -> Result<(Vec<Row>, Vec<Option<Held>>), Overloaded> {
        if self.store().exceptions().is_empty() {
            return self.estimate_open(charges, hold).await;
        }
        match self.excepted(charges) {
            Excepted::Denied(rows) => Ok((rows, Vec::new())),
            Excepted::Open(Applied { open, settled }) => {
                let (positions, charges): (Vec<usize>, Vec<Charge>) = open.into_iter().unzip();
                let (rows, held) = self.estimate_open(charges, hold).await?;
                let estimated = positions.into_iter().zip(rows.into_iter().zip(held));
                let settled = settled.into_iter().map(|(position, row)| (position, (row, None)));
                Ok(in_order(estimated.chain(settled).collect()).into_iter().unzip())
            }
        }
    }

    async fn estimate_open(
        &self,
        charges: Vec<Charge>,
        hold: Duration,
    ) -> Result<(Vec<Row>, Vec<Option<Held>>), Overloaded> {
        let rows = match self.store().reserve(&charges, hold).await {
            Ok(Reserved { decisions, held }) => {
                let row = |(charge, (decision, source))| Row::decided(charge, decision, source);
                return Ok((charges.into_iter().zip(decisions).map(row).collect(), held));
            }
            Err(StoreError::Unavailable { .. }) => {
                self.store_errors.fetch_add(1, Relaxed);
                if let Some(estimated) = self.estimates_without_store(&charges, hold).await {
                    return Ok(estimated);
                }
                self.rows_without_store(charges).await?
            }
            Err(StoreError::Overloaded(overloaded)) => return Err(overloaded),
            // Some of the charges can still be decided.
            Err(_) => self.decide_open(charges).await?,
        };
        let held = rows.iter().map(Held::without_receipt).collect();
        Ok((rows, held))
    }

    /// Decides charges that the caller made itself, under rules that need not be in force. If the store cannot
    /// answer, this is an error, which the caller has to handle.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollkeeper::{Charge, Key, Limiter, MemoryStore, Policy, Rule};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let limiter = Limiter::new(Policy::default(), MemoryStore::new());
    /// let rule = Arc::new(Rule::new("mine").key("{id}").limit("2/min").build().expect("valid"));
    /// let charge = Charge::new(rule, Key { variant: 0, value: "42".into() }, 1);
    /// assert_eq!(limiter.charge(&[charge]).await?[0].0.remaining, 1);
    /// # Ok::<(), tollkeeper::StoreError>(()) }).unwrap();
    /// ```
    pub async fn charge(&self, charges: &[Charge]) -> Result<Vec<(Decision, Source)>, StoreError> {
        // Boxed, because it is large.
        let decided = Box::pin(self.store().charge(charges)).await;
        if decided.as_ref().is_err_and(|error| !matches!(error, StoreError::Overloaded(_))) {
            self.store_errors.fetch_add(1, Relaxed);
        }
        decided
    }

    /// Decides each of these charges separately and in order, without waiting, and appends the results to `decided`. They are
    /// those of one call to [`Limiter::charge`] for each, which would be slower. Only a memory store can do this: with another
    /// store every result is an error.
    pub fn charge_each_now(&self, charges: &[Charge], decided: &mut Vec<Result<Decision, StoreError>>) {
        let before = decided.len();
        match self.store().as_memory() {
            Some(memory) => memory.charge_each(charges, decided),
            None => {
                let elsewhere = || StoreError::Unavailable { reason: "it is not in this process".into() };
                decided.extend(charges.iter().map(|_| Err(elsewhere())));
            }
        }
        let failed = decided[before..].iter().filter(|decided| decided.is_err()).count();
        if failed > 0 {
            self.store_errors.fetch_add(failed as u64, Relaxed);
        }
    }

    /// The store that a row's answer came from.
    pub(crate) fn store_of(&self, source: Source) -> &Store {
        if source == Source::Local { self.local() } else { self.store() }
    }

    /// Where rules with `local` are decided while the store is unreachable. Created when first needed.
    pub(crate) fn local(&self) -> &Store {
        self.local.get_or_init(|| {
            let local = Store::from(MemoryStore::new());
            local.rules_changed(&self.policy());
            local
        })
    }
}

/// What is left after exceptions.
enum Excepted {
    /// Nothing: an exception denies the request.
    Denied(Vec<Row>),
    Open(Applied),
}
