//! Decides without a call where possible: cached denials and leases. Only with the server's own clock, not with a
//! manual one.

use std::sync::Arc;

use tollkeeper_core::{Charge, Decision, Enforcement, Source, is_denied};

use super::across;
use super::batch::Ask;
use super::gate;
use super::instant::Instant;
use super::leases::{Leases, Returning, Spent, Wanted};
use super::shared::{Decided, Shared, from};
use crate::store::error::StoreError;

impl Shared {
    /// Spends leases as far as they reach, and asks the store for the rest.
    pub(super) async fn charge(
        self: &Arc<Self>,
        charges: &[Charge],
    ) -> Result<(Vec<(Decision, Source)>, Instant), StoreError> {
        let now = Instant::now();
        let is_leased = charges.iter().any(|charge| charge.lease().is_some());
        let Some(leases) = self.ahead.as_ref().map(|ahead| &ahead.leases).filter(|_| is_leased) else {
            gate::pass(&self.overload).await?;
            let Decided { decisions, asked_at, .. } = self.decide(charges, Ask::Charge).await?;
            return Ok((from(Source::Store, decisions), asked_at));
        };
        let mut spent: Vec<Option<Spent>> = Vec::with_capacity(charges.len());
        let mut asked = Vec::new();
        for charge in charges {
            let holding = leases.holding(charge, now).map(|(holding, is_first)| {
                if is_first {
                    self.sweep_leases();
                }
                holding
            });
            let served = match &holding {
                Some(holding) => {
                    let round_trip = self.nodes.round_trip(self.slot(charge));
                    let take = |wanted| self.io.spawn(self.clone().take(wanted));
                    match holding.serve(charge, now, round_trip, &self.overload, take).await {
                        Ok(served) => served,
                        Err(error) => return Err(put_back(spent, error)),
                    }
                }
                None => None,
            };
            if served.is_none() {
                asked.push((charge.clone(), holding));
            }
            spent.push(served);
        }
        let (mut rest, holdings): (Vec<Charge>, Vec<_>) = asked.into_iter().unzip();
        let mut leased = charges.iter().zip(&spent).filter(|(_, spent)| spent.is_some());
        if leased.any(|(charge, _)| charge.enforcement() == Enforcement::Quota) {
            // One of the rules with `mode: quota` has room: the others no longer matter.
            rest = across::without_alternatives(rest);
        }
        if !rest.is_empty()
            && let Err(overloaded) = gate::pass(&self.overload).await
        {
            return Err(put_back(spent, overloaded.into()));
        }
        let decided = match self.decide(&rest, Ask::Charge).await {
            Ok(decided) => decided,
            Err(StoreError::PartlyUnavailable { charges, reason }) => {
                // By position among those that were asked for, and the caller counts all.
                let asked: Vec<usize> = (0..spent.len()).filter(|charge| spent[*charge].is_none()).collect();
                let charges = charges.into_iter().map(|charge| asked[charge]).collect();
                return Err(put_back(spent, StoreError::PartlyUnavailable { charges, reason }));
            }
            Err(error) => return Err(put_back(spent, error)),
        };
        for (holding, decision) in holdings.into_iter().zip(&decided.decisions) {
            if let Some(holding) = holding {
                holding.learn(*decision, now);
            }
        }
        let is_denied = is_denied(rest.iter().zip(&decided.decisions));
        let mut decisions = decided.decisions.into_iter();
        let mut answers = Vec::with_capacity(charges.len());
        for served in spent {
            match served {
                Some(spent) if is_denied => answers.push((spent.put_back(), Source::Lease)),
                Some(spent) => answers.push((spent.decision, Source::Lease)),
                // There is one decision per charge asked for.
                None => answers.extend(decisions.next().map(|decision| (decision, Source::Store))),
            }
        }
        Ok((answers, decided.asked_at))
    }

    /// Spends leases, if what is held is enough for all charges.
    pub(super) fn spend_held(
        self: &Arc<Self>,
        leases: &Leases,
        charges: &[Charge],
        now: Instant,
    ) -> Option<Vec<(Decision, Source)>> {
        let (mut spent, mut answers) = (Vec::<Spent>::new(), Vec::new());
        for (index, charge) in charges.iter().enumerate() {
            let served = leases.known(charge).and_then(|holding| {
                let round_trip = self.nodes.round_trip(self.slot(charge));
                holding.serve_held(charge, now, round_trip, |wanted| self.io.spawn(self.clone().take(wanted)))
            });
            match served {
                Some(one) => {
                    answers.push((one.decision, Source::Lease));
                    // The last one is never put back.
                    if index + 1 < charges.len() {
                        spent.push(one);
                    }
                }
                None => {
                    for spent in spent {
                        spent.put_back();
                    }
                    return None;
                }
            }
        }
        Some(answers)
    }

    /// Leases tokens.
    pub(super) async fn take(self: Arc<Self>, wanted: Wanted) {
        let Wanted { holding, token, tokens } = wanted;
        let wait = self.submit(self.slot(&token), Ask::Lease, vec![token], tokens);
        let answered = self.answered(wait).await.map_err(StoreError::from);
        holding.taken(answered, Instant::now());
    }

    /// Returns idle leases, for as long as there are any.
    pub(super) fn sweep_leases(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        self.io.spawn(async move {
            loop {
                tokio::time::sleep(Leases::SWEEP).await;
                let Some(shared) = shared.upgrade() else { return };
                let Some(back) = shared.ahead.as_ref().and_then(|ahead| ahead.leases.sweep(Instant::now(), false))
                else {
                    return;
                };
                shared.return_tokens(back).await;
            }
        });
    }

    pub(super) async fn return_tokens(self: &Arc<Self>, buckets: Vec<Returning>) {
        for returning in buckets {
            let receipts = returning.receipts();
            let Some((charge, _)) = receipts.first() else { continue };
            let slot = self.slot(charge);
            // If the outcome is unknown they may be returned already, and are not spent again.
            if let Some(is_back) = Arc::clone(self).refund(slot, receipts).await {
                returning.keep(&is_back);
            }
        }
    }
}

/// The request was not decided: its leased tokens are put back.
fn put_back(spent: Vec<Option<Spent>>, error: StoreError) -> StoreError {
    for spent in spent.into_iter().flatten() {
        spent.put_back();
    }
    error
}
