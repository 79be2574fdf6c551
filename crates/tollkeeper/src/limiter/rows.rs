//! The answers to the charges of a request: from the store, and from the failure policy of each rule for which the store has none.
//!
//! A request that is denied already asks no other rule, so that nothing is charged.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tollkeeper_core::{Charge, FailurePolicy, Row, Source, Terms};

use super::decided::{Decided, Undecided, by_failure_policy, in_order, is_alternative, unavailable};
use super::{Limiter, Share};
use crate::store::held::{Held, Reserved};
use crate::store::{Overloaded, Store, StoreError};

impl Limiter {
    /// A store's answers, in the order of the charges; rules for which it has no room answer by their failure policy.
    pub(super) async fn rows(
        &self,
        store: &Store,
        source: Source,
        mut charges: Vec<Charge>,
    ) -> Result<Vec<Row>, Undecided> {
        let mut answered: Vec<(usize, Row)> = Vec::new();
        let mut positions: Vec<usize> = (0..charges.len()).collect();
        loop {
            let asked = if source == Source::Local { self.shares_of(&charges) } else { None };
            match store.charge(asked.as_ref().unwrap_or(&charges)).await {
                Ok(decisions) => {
                    let decided = asked.unwrap_or(charges).into_iter().zip(decisions).zip(positions);
                    answered.extend(decided.map(|((charge, (decision, by)), position)| {
                        (position, Row::decided(charge, decision, source.max(by)))
                    }));
                    break;
                }
                Err(StoreError::Full { charge }) => {
                    self.store_errors.fetch_add(1, Relaxed);
                    let row = unavailable(charges.remove(charge));
                    answered.push((positions.remove(charge), row));
                    if Decided::of(answered.iter().map(|(_, row)| row)).denies(&charges) {
                        // The request is denied anyway: the other rules are not asked, so nothing is charged.
                        let rest = charges.into_iter().map(by_failure_policy);
                        answered.extend(positions.into_iter().zip(rest));
                        break;
                    }
                }
                Err(StoreError::PartlyUnavailable { charges: unreachable, .. }) => {
                    self.store_errors.fetch_add(1, Relaxed);
                    let (without, with): (Vec<_>, Vec<_>) = charges
                        .into_iter()
                        .zip(positions)
                        .enumerate()
                        .partition(|(index, _)| unreachable.contains(index));
                    let (unreachable_charges, places): (Vec<Charge>, Vec<usize>) =
                        without.into_iter().map(|(_, one)| one).unzip();
                    (charges, positions) = with.into_iter().map(|(_, one)| one).unzip();
                    // Whether another one with `mode: quota` has room is known only when the store has answered.
                    let is_later = charges.iter().any(is_alternative);
                    let alone = |charge: Charge| match is_later && is_alternative(&charge) {
                        true => charge.without_say(),
                        false => charge,
                    };
                    let unreachable_charges = unreachable_charges.into_iter().map(alone).collect();
                    // If the store denies afterwards, a rule decided in this process keeps its charge; the store's
                    // are exact.
                    let rows = Box::pin(self.rows_without_store(unreachable_charges)).await?;
                    let judged = |row: Row| match is_later {
                        true => Row { charge: row.charge.with_say(), ..row },
                        false => row,
                    };
                    answered.extend(places.into_iter().zip(rows.into_iter().map(judged)));
                    let decided = Decided::of(answered.iter().map(|(_, row)| row));
                    charges = charges.into_iter().map(|charge| decided.applied_to(charge)).collect();
                    if decided.denies(&charges) {
                        // The request is denied anyway: the other rules are not asked, so nothing is charged.
                        answered.extend(positions.into_iter().zip(charges.into_iter().map(by_failure_policy)));
                        break;
                    }
                }
                // The other kind is about reservations, and never the answer to a charge.
                Err(StoreError::Unavailable { .. } | StoreError::TooManyReservations { .. }) => {
                    self.store_errors.fetch_add(1, Relaxed);
                    if answered.is_empty() {
                        return Err(Undecided::Unavailable(charges));
                    }
                    // It was reachable a moment ago, and some rules have answered.
                    let rows = Box::pin(self.rows_without_store(charges)).await?;
                    answered.extend(positions.into_iter().zip(rows));
                    break;
                }
                Err(StoreError::Overloaded(overloaded)) => return Err(overloaded.into()),
            }
        }
        Ok(in_order(answered))
    }

    /// Each rule's own answer while the store is unreachable: `closed` denies, `open` lets pass, `local` decides in
    /// this process.
    pub(super) async fn rows_without_store(&self, charges: Vec<Charge>) -> Result<Vec<Row>, Overloaded> {
        let (local, rest): (Vec<_>, Vec<_>) = charges.into_iter().enumerate().partition(|(_, charge)| is_local(charge));
        let rest: Vec<(usize, Row)> =
            rest.into_iter().map(|(position, charge)| (position, by_failure_policy(charge))).collect();
        let by_policy = Decided::of(rest.iter().map(|(_, row)| row));
        if by_policy.denies(local.iter().map(|(_, charge)| charge)) {
            let unasked = local.into_iter().map(|(position, charge)| (position, by_failure_policy(charge)));
            return Ok(in_order(unasked.chain(rest).collect()));
        }
        let (positions, local): (Vec<usize>, Vec<Charge>) =
            local.into_iter().map(|(position, charge)| (position, by_policy.applied_to(charge))).unzip();
        let decided = match self.rows(self.local(), Source::Local, local).await {
            Ok(rows) => rows,
            Err(Undecided::Unavailable(charges)) => charges.into_iter().map(by_failure_policy).collect(),
            Err(Undecided::Overloaded(overloaded)) => return Err(overloaded),
        };
        Ok(in_order(positions.into_iter().zip(decided).chain(rest).collect()))
    }

    /// Estimates while the store is unreachable, if all rules decide in this process: it can correct them too.
    pub(super) async fn estimates_without_store(
        &self,
        charges: &[Charge],
        hold: Duration,
    ) -> Option<(Vec<Row>, Vec<Option<Held>>)> {
        if !charges.iter().all(is_local) {
            return None;
        }
        let shares = self.shares_of(charges);
        let charges = shares.as_deref().unwrap_or(charges);
        let Reserved { decisions, held } = self.local().reserve(charges, hold).await.ok()?;
        let row = |(charge, (decision, by))| Row::decided(charge, decision, Source::Local.max(by));
        Some((charges.iter().cloned().zip(decisions).map(row).collect(), held))
    }

    /// The same charges under this instance's share of each quota; `None` if it is the only instance.
    fn shares_of(&self, charges: &[Charge]) -> Option<Vec<Charge>> {
        let instances = self.store().sharers();
        if instances == 1 {
            return None;
        }
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = |charge: &Charge| {
            let of = &charge.rule;
            if let Some(terms) = charge.terms() {
                let terms = terms.with_quota(terms.quota().share(instances));
                return charge.clone().on(Arc::new(terms));
            }
            let known =
                shares.get(of.name()).filter(|share| share.instances == instances && Arc::ptr_eq(&share.of, of));
            let terms = known.map(|share| share.terms.clone()).unwrap_or_else(|| {
                let terms = Arc::new(Terms::new(of.quota().share(instances)));
                shares.insert(of.shared_name(), Share { of: of.clone(), instances, terms: terms.clone() });
                terms
            });
            charge.clone().on(terms)
        };
        Some(charges.iter().map(share).collect())
    }
}

/// Whether its rule is decided in this process while the store is unreachable.
fn is_local(charge: &Charge) -> bool {
    charge.rule.on_store_failure() == FailurePolicy::Local
}
