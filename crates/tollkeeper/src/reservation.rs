//! Reservations, for costs known only afterwards: reserve an estimate, then settle the actual cost.

pub(crate) mod ticket;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollkeeper_core::{Algorithm, Charge, CostError, Decision, Request, Row, Source, Verdict, parse_cost};

use crate::limiter::{CheckError, Limiter};
use crate::permit::Permit;
use crate::store::held::Held;
use crate::store::{MAX_HOLD, StoreError};

/// The estimate charged for an admitted request, to be corrected by [`Reservation::settle`].
///
/// Dropped without that, the estimate stays charged: the work may have been done before something went wrong. Slots
/// of `concurrency` rules are released in any case.
///
/// ```
/// use std::sync::Arc;
/// use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, RuleSpec};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let tokens = RuleSpec { name: "tokens".into(), key: "{user_id}".into(), limit: "10,000/day".into(), ..RuleSpec::default() };
/// let limiter = Arc::new(Limiter::new(Policy::new([tokens]).expect("valid"), MemoryStore::new()));
///
/// let estimate = Descriptor::new([("user_id", "42")]).with_cost(4_000);
/// let (verdict, reservation) = limiter.reserve(&estimate).await?;
/// assert_eq!(verdict.rows()[0].decision.remaining, 6_000);
///
/// // ... ask the model, and see what it used ...
/// let settlement = reservation.settle(2_311).await.expect("the store is there");
/// assert_eq!(settlement.rows[0].decision.remaining, 7_689);
/// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "an estimate that is dropped stays charged"]
pub struct Reservation {
    limiter: Arc<Limiter>,
    /// The estimated cost of the whole request.
    cost: u32,
    held: Vec<HeldRow>,
    /// For how long the store tracks refunds of the buckets.
    hold: Duration,
    began: Instant,
}

/// How long a reservation lasts by default.
const DEFAULT_HOLD: Duration = Duration::from_secs(600);

/// What one rule was charged, and how its part of the actual cost is found.
#[derive(Clone, Debug)]
struct HeldRow {
    held: Held,
    /// What the rule charges per unit of the request's cost.
    units: u32,
    /// The attribute that carries those units.
    carrier: Option<String>,
    /// What was charged.
    source: Source,
}

/// The actual cost of a request: its own cost, attributes that carry costs, or both. Whatever is not given stays as
/// estimated.
///
/// ```
/// use tollkeeper::Actual;
/// let tokens = Actual::cost(2_311);
/// let by_attribute = Actual::default().attribute("response.x-tokens-used", "2311");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    cost: Option<u32>,
    attributes: BTreeMap<String, String>,
}

/// The result of settling a reservation.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// One per charged rule.
    pub rows: Vec<Settled>,
}

/// The result for one rule's charge.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The rule's charge, at the actual cost.
    pub charge: Charge,
    /// The estimate that was charged.
    pub reserved: u32,
    /// How much of it was refunded. This may be less than was not used: what a bucket has refilled in the meantime is not refunded
    /// again, nor what a refund of an amount or a reset gave back. A token that was refilled in part counts as refunded.
    pub refunded: u32,
    /// The bucket's state now: `remaining` and `reset_after` as for a peek.
    pub decision: Decision,
}

impl Actual {
    /// The actual cost of the request.
    pub fn cost(cost: u32) -> Actual {
        Actual { cost: Some(cost), ..Actual::default() }
    }

    /// Adds an attribute that carries the cost of some rule.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Actual {
        self.attributes.insert(name.into(), value.into());
        self
    }

    fn of(&self, row: &HeldRow, reserved: u32) -> Result<u32, CostError> {
        let carried = row.carrier.as_ref().and_then(|carrier| Some((carrier, self.attributes.get(carrier)?)));
        let units = match carried {
            Some((attribute, value)) => parse_cost(value).ok_or_else(|| CostError {
                rule: row.held.charge.rule.shared_name(),
                attribute: attribute.clone(),
                value: value.clone(),
            })?,
            None => row.units,
        };
        Ok(units.saturating_mul(self.cost.unwrap_or(reserved)))
    }
}

impl From<u32> for Actual {
    fn from(cost: u32) -> Actual {
        Actual::cost(cost)
    }
}

/// What one rule was charged, corrected.
struct Corrected {
    source: Source,
    held: Held,
    cost: u32,
    refunded: u32,
}

/// Why a reservation was not settled. The estimate stays charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// An attribute that should carry a cost is not a number. Nothing was changed.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The store could not be reached, or its answer was lost.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Limiter {
    /// Decides a request as [`Limiter::check`] does, with its cost as an estimate to be settled within ten minutes:
    /// see [`Limiter::reserve_for`].
    pub async fn reserve(self: &Arc<Self>, request: &impl Request) -> Result<(Verdict, Reservation), CheckError> {
        self.reserve_for(request, DEFAULT_HOLD).await
    }

    /// Decides a request as [`Limiter::check`] does, with its cost as an estimate to be settled within `hold` (at
    /// most [`MAX_HOLD`]). If it is settled later, buckets get no refund. The reservation of a denied request is
    /// empty.
    ///
    /// What was charged in this process because the store was unreachable is corrected in this process if all rules have
    /// [`FailurePolicy::Local`](crate::FailurePolicy::Local). Otherwise such decisions cannot be corrected.
    pub async fn reserve_for(
        self: &Arc<Self>,
        request: &impl Request,
        hold: Duration,
    ) -> Result<(Verdict, Reservation), CheckError> {
        let (hold, began) = (hold.min(MAX_HOLD), Instant::now());
        let charges = self.charges(&[request])?.remove(0);
        let carriers: Vec<Option<String>> =
            charges.iter().map(|charge| charge.rule.cost().carrier(request).map(str::to_string)).collect();
        let (rows, held) = self.decide_estimate(charges, hold).await?;
        let verdict = Verdict::new(rows);
        let cost = request.cost();
        let held = held.into_iter().chain(std::iter::repeat_with(|| None)).zip(carriers).zip(verdict.rows());
        let held = held.filter_map(|((held, carrier), row)| {
            // An estimate of 0 took nothing, but the actual usage is still charged.
            let is_nothing = row.charge.cost == 0 && row.decision.is_allowed() && is_counted(row);
            let nothing = || is_nothing.then(|| Held::nothing(&row.charge));
            let units = row.charge.rule.units_of(request);
            Some(HeldRow { held: held.or_else(nothing)?, units, carrier, source: row.source })
        });
        let held = if verdict.is_allowed() { held.collect() } else { Vec::new() };
        Ok((verdict, Reservation { limiter: self.clone(), cost, held, hold, began }))
    }
}

/// Whether the store keeps the row's bucket: it decided, by the rule's limit or by a granted one.
fn is_counted(row: &Row) -> bool {
    let is_settled = row.charge.exception().is_some_and(|exception| exception.kind.settles());
    matches!(row.source, Source::Store | Source::Exception) && !is_settled
}

impl HeldRow {
    fn is_slot(&self) -> bool {
        self.held.charge.quota().algorithm() == Algorithm::Concurrency
    }
}

impl Reservation {
    /// Whether nothing was charged.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The attributes that carry what rules charged, by name.
    pub fn carriers(&self) -> impl Iterator<Item = &str> {
        self.held.iter().filter_map(|row| row.carrier.as_deref())
    }

    /// Takes the slots out, to be released at another time than the rest is settled.
    pub fn take_slots(&mut self) -> Permit {
        let slots = self.held.extract_if(.., |row| row.is_slot()).map(|HeldRow { held, source, .. }| (held, source));
        Permit::of(&self.limiter, slots)
    }

    /// Settles the estimate: unused cost is refunded, and usage beyond it is charged even if it no longer fits (the
    /// key then has to wait).
    ///
    /// A refund never creates tokens. What a bucket has refilled in the meantime is not refunded again, so settle
    /// early.
    pub async fn settle(mut self, actual: impl Into<Actual>) -> Result<Settlement, SettleError> {
        let mut rows = Vec::with_capacity(self.held.len());
        for Corrected { source, held: Held { charge, receipt, .. }, cost, refunded } in
            self.correct(actual.into()).await?
        {
            let decision = self.limiter.store_of(source).inspect(charge.bucket()).await?;
            let charge = charge.with_cost(cost);
            rows.push(Settled { charge, reserved: receipt.cost, refunded, decision });
        }
        Ok(Settlement { rows })
    }

    /// Gives all of it back, because the request turns out not to count. This is settling at cost 0 for those who need no report: it
    /// takes one call to a server less for each rule.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollkeeper::{Descriptor, Limiter, MemoryStore, Policy, Rule};
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let failures = Policy::new([Rule::new("failures").key("{account}").limit("1/h")]).expect("valid");
    /// let limiter = Arc::new(Limiter::new(failures, MemoryStore::new()));
    /// let attempt = Descriptor::new([("account", "ann")]);
    /// for is_right in [true, true, false] {
    ///     let (verdict, reservation) = limiter.reserve(&attempt).await?;
    ///     assert!(verdict.is_allowed());
    ///     if is_right {
    ///         reservation.give_back().await.expect("the store is there");
    ///     }
    /// }
    /// assert!(!limiter.check(&attempt).await?.is_allowed());
    /// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
    /// ```
    pub async fn give_back(mut self) -> Result<(), SettleError> {
        self.correct(Actual::cost(0)).await.map(drop)
    }

    async fn correct(&mut self, actual: Actual) -> Result<Vec<Corrected>, SettleError> {
        let costs = self.held.iter().map(|row| actual.of(row, self.cost)).collect::<Result<Vec<_>, _>>()?;
        let mut held = std::mem::take(&mut self.held);
        if self.began.elapsed() > self.hold {
            held.iter_mut().for_each(|row| row.held.give_nothing_back());
        }
        let mut corrected = Vec::with_capacity(held.len());
        let (local, stored): (Vec<_>, Vec<_>) =
            held.into_iter().zip(costs).partition(|(row, _)| row.source == Source::Local);
        for (source, held) in [(Source::Store, stored), (Source::Local, local)] {
            let store = self.limiter.store_of(source);
            if held.is_empty() {
                // A store that was not asked may be unreachable.
                continue;
            }
            let held: Vec<(Held, u32)> = held.into_iter().map(|(row, cost)| (row.held, cost)).collect();
            let refunded = store.settle(&held).await?;
            let each = held.into_iter().zip(refunded);
            corrected.extend(each.map(|((held, cost), refunded)| Corrected { source, held, cost, refunded }));
        }
        Ok(corrected)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        drop(self.take_slots());
    }
}
