//! Costs that are known later: reserve an estimate, then settle what it did cost.

pub(crate) mod ticket;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollkeeper_core::{Algorithm, Charge, CostError, Decision, Request, Row, Source, Verdict, parse_cost};

use crate::limiter::{CheckError, Limiter};
use crate::permit::Permit;
use crate::store::held::Held;
use crate::store::{MAX_HOLD, StoreError};

/// What an admitted request was charged as an estimate, to be corrected by [`Reservation::settle`].
///
/// Dropped without that, the estimate stays charged: what was done before something went wrong has been done. Slots of
/// `concurrency` rules are given back in any case.
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
    /// What the whole request was said to cost.
    cost: u32,
    held: Vec<HeldRow>,
    /// For how long the store counts what buckets are given back.
    hold: Duration,
    began: Instant,
}

/// How long a reservation lasts by default.
const DEFAULT_HOLD: Duration = Duration::from_secs(600);

/// What one rule holds, and how its part of the cost is found.
#[derive(Clone, Debug)]
struct HeldRow {
    held: Held,
    /// What the rule charges for each of the request's cost.
    units: u32,
    /// The attribute that carries these.
    carrier: Option<String>,
    /// Who was charged.
    source: Source,
}

/// What a request did cost: its own cost, attributes that carry costs, or both. What is not told stays as estimated.
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

/// What became of a reservation.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// One per rule that had been charged.
    pub rows: Vec<Settled>,
}

/// What became of one rule's charge.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The rule's row, with what it did cost.
    pub charge: Charge,
    /// What had been charged.
    pub reserved: u32,
    /// What was given back of it. Less than the difference where time has given it back already.
    pub refunded: u32,
    /// How the bucket stands now: `remaining` and `reset_after` as for a request that only looks.
    pub decision: Decision,
}

impl Actual {
    /// What the request did cost.
    pub fn cost(cost: u32) -> Actual {
        Actual { cost: Some(cost), ..Actual::default() }
    }

    /// With an attribute that carries the cost of some rule.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Actual {
        self.attributes.insert(name.into(), value.into());
        self
    }

    fn of(&self, row: &HeldRow, reserved: u32) -> Result<u32, CostError> {
        let told = row.carrier.as_ref().and_then(|carrier| Some((carrier, self.attributes.get(carrier)?)));
        let units = match told {
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

/// Why a reservation was not settled. The estimate stays charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// An attribute that should carry a cost holds no number. Nothing was changed.
    #[error(transparent)]
    Cost(#[from] CostError),
    /// The store could not be reached, or did not say what it has done.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Limiter {
    /// Decides a request as [`Limiter::check`] does, taking its cost for an estimate that is corrected within ten minutes:
    /// see [`Limiter::reserve_for`].
    pub async fn reserve(self: &Arc<Self>, request: &impl Request) -> Result<(Verdict, Reservation), CheckError> {
        self.reserve_for(request, DEFAULT_HOLD).await
    }

    /// Decides a request as [`Limiter::check`] does, taking its cost for an estimate that is corrected within `hold` (at most
    /// [`MAX_HOLD`]). Settled later, buckets are given nothing back. The reservation of a denied request is empty.
    ///
    /// What was decided without the store, while it was away, cannot be corrected and stays.
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
            // An estimate of nothing took nothing, and what is used is charged all the same.
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

impl Reservation {
    /// Whether nothing was charged.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The attributes that carry what rules charged, by name.
    pub fn carriers(&self) -> impl Iterator<Item = &str> {
        self.held.iter().filter_map(|row| row.carrier.as_deref())
    }

    /// The slots that it occupies, to be given back at another time than the rest is settled.
    pub fn take_slots(&mut self) -> Permit {
        let is_slot = |row: &mut HeldRow| row.held.charge.quota().algorithm() == Algorithm::Concurrency;
        let slots = self.held.extract_if(.., is_slot).map(|HeldRow { held, source, .. }| (held, source));
        Permit::of(&self.limiter, slots)
    }

    /// Corrects the estimate: what was not used is given back, what was used beyond it is charged, also if it does not
    /// fit any more (the key then has to wait for it).
    ///
    /// Nothing is ever minted. What a bucket has refilled meanwhile is not given back a second time, so it is better to
    /// settle soon than late.
    pub async fn settle(mut self, actual: impl Into<Actual>) -> Result<Settlement, SettleError> {
        let actual = actual.into();
        let costs = self.held.iter().map(|row| actual.of(row, self.cost)).collect::<Result<Vec<_>, _>>()?;
        let mut held = std::mem::take(&mut self.held);
        if self.began.elapsed() > self.hold {
            held.iter_mut().for_each(|row| row.held.give_nothing_back());
        }
        let mut rows = Vec::with_capacity(held.len());
        let (local, stored): (Vec<_>, Vec<_>) =
            held.into_iter().zip(costs).partition(|(row, _)| row.source == Source::Local);
        for (source, held) in [(Source::Store, stored), (Source::Local, local)] {
            let store = self.limiter.store_of(source);
            let held: Vec<(Held, u32)> = held.into_iter().map(|(row, cost)| (row.held, cost)).collect();
            let refunded = store.settle(&held).await?;
            for ((Held { charge, receipt, .. }, cost), refunded) in held.into_iter().zip(refunded) {
                let decision = store.inspect(charge.bucket()).await?;
                let charge = charge.with_cost(cost);
                rows.push(Settled { charge, reserved: receipt.cost, refunded, decision });
            }
        }
        Ok(Settlement { rows })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        drop(self.take_slots());
    }
}
