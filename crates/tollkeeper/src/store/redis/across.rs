//! Requests whose rules live in different hash slots of a cluster, which no single script can decide.
//!
//! First every slot is asked whether its part would pass, without charging. If one denies, the request is denied and
//! was charged nowhere. If all agree, each is charged. Another request may have been faster in between: if one slot
//! denies now, the others are refunded. So
//! - a limit is never exceeded, since every slot decides on its own charges atomically;
//! - a denied request ends charged nowhere. In the rare case that others were faster between the two steps, a
//!   concurrent request may see less than there is, and a bucket may lose what it refilled in that moment;
//! - a process that dies, or a node that becomes unreachable, between charge and refund leaves the charge in place.

use std::sync::Arc;

use tollkeeper_core::{Charge, Decision, Enforcement, Receipt, is_denied};

use super::batch::{Ask, Booked};
use super::callers::Answered;
use super::instant::Instant;
use super::node::Refusal;
use super::nodes::Slot;
use super::script::{Call, REFUND};
use super::shared::{Decided, Shared, read};
use crate::sparing::Sparing;
use crate::store::error::StoreError;

/// The charges of a request that one call can decide.
pub(super) struct Part {
    pub(super) slot: Slot,
    /// Their positions in the request.
    positions: Vec<usize>,
    pub(super) charges: Vec<Charge>,
}

impl Part {
    /// The positions of its charges in the request.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.positions.iter().copied()
    }
}

impl Shared {
    /// The charges of a request grouped by hash slot.
    pub(super) fn parts(&self, charges: &[Charge]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (position, charge) in charges.iter().enumerate() {
            let slot = self.slot(charge);
            match parts.iter_mut().find(|part| part.slot == slot) {
                Some(part) => {
                    part.positions.push(position);
                    part.charges.push(charge.clone());
                }
                None => parts.push(Part { slot, positions: vec![position], charges: vec![charge.clone()] }),
            }
        }
        parts
    }

    /// The charges of a request one by one: for migrating slots, whose keys are on two nodes.
    pub(super) fn single_parts(&self, charges: &[Charge]) -> Vec<Part> {
        let part = |(position, charge): (usize, &Charge)| {
            let slot = self.slot(charge);
            Part { slot, positions: vec![position], charges: vec![charge.clone()] }
        };
        charges.iter().enumerate().map(part).collect()
    }

    /// Peeks first, then charges, and refunds if others were faster.
    pub(super) async fn decide_across(self: Arc<Self>, mut parts: Vec<Part>, ask: Ask) -> Result<Decided, StoreError> {
        let alternatives = Alternatives::across(&mut parts);
        let peeked = self.ask_all(&parts, Ask::Peek).await;
        if let Some(error) = unreachable(&parts, &peeked) {
            return Err(error);
        }
        let peeked: Vec<Answered> = peeked.into_iter().flatten().collect();
        if denied(&parts, &peeked).any(|denied| denied) || alternatives.are_over(peeked.iter().map(Some)) {
            return Ok(put_together(&parts, &peeked));
        }
        // Always awaited: what was charged must be known, to be refunded.
        let ask = if ask == Ask::Estimate { ask } else { Ask::Reserve };
        let reserved = self.ask_all(&parts, ask).await;
        let failed = unreachable(&parts, &reserved);
        let charged = |part: &Part, answer: &Answered| !is_denied(part.charges.iter().zip(&answer.answer.decisions));
        let is_whole =
            |part: &Part, answer: &Result<Answered, _>| matches!(answer, Ok(answer) if charged(part, answer));
        let are_over = alternatives.are_over(reserved.iter().map(|answer| answer.as_ref().ok()));
        if !are_over && parts.iter().zip(&reserved).all(|(part, answer)| is_whole(part, answer)) {
            return Ok(put_together(&parts, &reserved.into_iter().flatten().collect::<Vec<_>>()));
        }
        let mut answers = Vec::with_capacity(parts.len());
        let mut refunds = Vec::new();
        for ((part, reserved), peeked) in parts.iter().zip(reserved).zip(peeked) {
            match reserved {
                Ok(answer) if charged(part, &answer) => {
                    refunds.push(tokio::spawn(Arc::clone(&self).refund(part.slot, receipts(part, &answer))));
                    answers.push(refunded(peeked, &answer));
                }
                Ok(denied) => answers.push(denied),
                Err(_) => answers.push(peeked),
            }
        }
        for refund in refunds {
            // It logs its own errors.
            let _ = refund.await;
        }
        failed.map_or_else(|| Ok(put_together(&parts, &answers)), Err)
    }

    /// All parts at the same time.
    async fn ask_all(self: &Arc<Self>, parts: &[Part], ask: Ask) -> Vec<Result<Answered, Refusal>> {
        let waits: Vec<_> = parts.iter().map(|part| self.submit(part.slot, ask, part.charges.clone(), 1)).collect();
        let mut answers = Vec::with_capacity(parts.len());
        for (part, wait) in parts.iter().zip(waits) {
            answers.push(match self.answered(wait).await {
                // The slot is migrating: a single key is always on one node. What was refunded to it may be on another, so nothing
                // of an estimate will be.
                Err(Refusal::TryAgain) if part.charges.len() == 1 => {
                    let ask = if ask == Ask::Estimate { Ask::Reserve } else { ask };
                    self.ask_alone(part.slot, ask, part.charges.clone()).await
                }
                other => other,
            });
        }
        answers
    }

    /// Refunds charges, once: a refund whose outcome is unknown is not repeated, because it could refund twice.
    /// Returns which ones were refunded, if that is known.
    pub(super) async fn refund(self: Arc<Self>, slot: Slot, receipts: Vec<(Charge, Receipt)>) -> Option<Vec<bool>> {
        if receipts.is_empty() {
            return Some(Vec::new());
        }
        let refund = |when| {
            let refunds = receipts.iter().map(|(charge, receipt)| {
                let bucket = charge.bucket();
                (self.key(bucket), self.refunded_key(bucket), bucket.quota, *receipt)
            });
            Call::refund(refunds, when)
        };
        match self.call_at(slot, &REFUND, refund, read::<Vec<bool>>).await {
            Ok(is_back) => Some(is_back),
            Err(refusal) => {
                static LINES: Sparing = Sparing::while_failing();
                if let Some(left_out) = LINES.turn() {
                    let error = StoreError::from(refusal);
                    tracing::warn!("a refund failed, so the charge stays: {error}{left_out}");
                }
                None
            }
        }
    }
}

/// Which parts got no answer, if any. A request of which a part was shed is shed as a whole.
fn unreachable(parts: &[Part], answers: &[Result<Answered, Refusal>]) -> Option<StoreError> {
    let failed = || parts.iter().zip(answers).filter(|(_, answer)| answer.is_err());
    let errors = || failed().filter_map(|(_, answer)| answer.as_ref().err().cloned()).map(StoreError::from);
    if let Some(overloaded) = errors().find(|error| matches!(error, StoreError::Overloaded(_))) {
        return Some(overloaded);
    }
    let reason = errors().next()?;
    if failed().count() == parts.len() && !matches!(reason, StoreError::PartlyUnavailable { .. }) {
        return Some(reason);
    }
    let charges = failed().flat_map(|(part, answer)| match answer {
        // Only some of its keys would be new, on a server that is full.
        Err(Refusal::Failed(StoreError::PartlyUnavailable { charges, .. })) => {
            charges.iter().map(|charge| part.positions[*charge]).collect()
        }
        _ => part.positions.clone(),
    });
    Some(StoreError::PartlyUnavailable { charges: charges.collect(), reason: reason.to_string() })
}

fn receipts(part: &Part, answer: &Answered) -> Vec<(Charge, Receipt)> {
    let booked = part.charges.iter().zip(&answer.answer.booked);
    booked.filter_map(|(charge, booked)| Some((charge.clone(), booked.as_ref()?.receipt))).collect()
}

fn denied<'p>(parts: &'p [Part], answers: &'p [Answered]) -> impl Iterator<Item = bool> + 'p {
    parts.iter().zip(answers).map(|(part, answer)| is_denied(part.charges.iter().zip(&answer.answer.decisions)))
}

/// What was charged and refunded: the answer from before is true again, except for what did not fit even then.
fn refunded(mut before: Answered, charged: &Answered) -> Answered {
    for (decision, now) in before.answer.decisions.iter_mut().zip(&charged.answer.decisions) {
        if !now.is_allowed() {
            *decision = *now;
        }
    }
    before
}

/// Rules with `mode: quota` in several parts, each by its part and its place there. No part knows the others, so in its
/// call they have no say, and they are judged here.
struct Alternatives(Vec<(usize, usize)>);

impl Alternatives {
    /// Takes their say from those that lie in several parts.
    fn across(parts: &mut [Part]) -> Alternatives {
        let in_part = |part: &Part| part.charges.iter().any(is_alternative);
        if parts.iter().filter(|part| in_part(part)).count() < 2 {
            return Alternatives(Vec::new());
        }
        let mut found = Vec::new();
        for (number, part) in parts.iter_mut().enumerate() {
            let places = part.charges.iter().enumerate().filter(|(_, charge)| is_alternative(charge));
            found.extend(places.map(|(place, _)| (number, place)));
            part.charges = without_alternatives(std::mem::take(&mut part.charges));
        }
        Alternatives(found)
    }

    /// Whether none of them has room. An answer that is missing is not one that denies.
    fn are_over<'a>(&self, answers: impl Iterator<Item = Option<&'a Answered>>) -> bool {
        let answers: Vec<_> = answers.collect();
        let is_over = |(part, place): &(usize, usize)| {
            let decision = answers[*part].and_then(|answer| answer.answer.decisions.get(*place));
            decision.is_some_and(|decision| !decision.is_allowed())
        };
        !self.0.is_empty() && self.0.iter().all(is_over)
    }
}

fn is_alternative(charge: &Charge) -> bool {
    charge.enforcement() == Enforcement::Quota
}

/// The same charges, in which rules with `mode: quota` have no say.
pub(super) fn without_alternatives(charges: Vec<Charge>) -> Vec<Charge> {
    let relieved = |charge: Charge| if is_alternative(&charge) { charge.without_say() } else { charge };
    charges.into_iter().map(relieved).collect()
}

/// In the order of the request.
fn put_together(parts: &[Part], answers: &[Answered]) -> Decided {
    let mut all: Vec<(usize, Decision, Option<Booked>)> = Vec::new();
    for (part, answer) in parts.iter().zip(answers) {
        let booked = answer.answer.booked.iter().copied().chain(std::iter::repeat(None));
        let decided = part.positions.iter().zip(&answer.answer.decisions).zip(booked);
        all.extend(decided.map(|((position, decision), booked)| (*position, *decision, booked)));
    }
    all.sort_by_key(|(position, ..)| *position);
    let asked_at = answers.iter().map(|answer| answer.asked_at).min().unwrap_or_else(Instant::now);
    let (decisions, booked) = all.into_iter().map(|(_, decision, booked)| (decision, booked)).unzip();
    Decided { decisions, booked, asked_at }
}
