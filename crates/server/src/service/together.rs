//! Several requests that pass or fail together, as in one call of Envoy.

use quanta::Instant;
use tollkeeper::{Charge, Outcome, Overloaded, Request, Row, StoreError, Together, Verdict};

use super::Service;
use crate::metrics::Front;

/// One of several requests: its charges, and what to do with them.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) charges: Vec<Charge>,
    pub(crate) effect: Effect,
}

/// What to do with the charges of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// They are charged.
    Charge,
    /// Nothing is charged. It passes if every enforced rule has anything left.
    Check,
    /// They are refunded, if all others pass.
    Refund,
}

impl Service {
    /// Decides all parts of a request, all or nothing, and counts the decisions.
    ///
    /// # Errors
    ///
    /// If the request was shed, or the store could not make a refund.
    pub(crate) async fn check_together(
        &self,
        front: Front,
        request: &impl Request,
        parts: Vec<Part>,
    ) -> Result<Together, StoreError> {
        let decided = if parts.iter().all(|part| part.effect == Effect::Charge) {
            let started = Instant::now();
            let decided = self.limiter.charge_all(parts.into_iter().map(|part| part.charges).collect()).await;
            decided.inspect(|decided| self.observe(request, &decided.whole, started)).map_err(StoreError::from)
        } else {
            // Boxed, because it is rare and large.
            Box::pin(self.decide_together(request, &parts)).await
        };
        match &decided {
            Ok(decided) => self.metrics.count_outcome(front, &decided.whole),
            Err(error) => self.metrics.count_outcome(front, error),
        }
        decided
    }

    async fn decide_together(&self, request: &impl Request, parts: &[Part]) -> Result<Together, StoreError> {
        let started = Instant::now();
        let mut decided = match self.find_used_up(parts).await? {
            Some(used_up) => used_up,
            None => self.limiter.charge_all(parts.iter().map(Part::charged_now).collect()).await?,
        };
        self.observe(request, &decided.whole, started);
        if decided.whole.is_allowed() && parts.iter().any(|part| part.effect == Effect::Refund) {
            self.refund(parts, &mut decided).await?;
        }
        Ok(decided)
    }

    /// The denial, if a part that is only checked has nothing left. Then nothing else is charged either.
    async fn find_used_up(&self, parts: &[Part]) -> Result<Option<Together>, Overloaded> {
        if parts.iter().all(|part| part.effect != Effect::Check) {
            return Ok(None);
        }
        let seen = self.limiter.charge_all(parts.iter().map(Part::at_no_cost).collect()).await?;
        let mut checked = parts.iter().zip(&seen.parts).filter(|(part, _)| part.effect == Effect::Check);
        let is_used_up = checked.any(|(_, verdict)| verdict.rows().iter().any(is_used_up));
        Ok(is_used_up.then(|| deny_used_up(parts, seen)))
    }

    /// Makes the refunds, and updates what is left for those parts.
    async fn refund(&self, parts: &[Part], decided: &mut Together) -> Result<(), StoreError> {
        let is_refunded = |part: &Part| part.effect == Effect::Refund;
        for part in parts.iter().filter(|part| is_refunded(part)) {
            self.limiter.refund(&part.charges).await?;
        }
        // The refund is done. If the new count cannot be read, the answer keeps the one from before.
        let Ok(after) = self.limiter.charge_all(parts.iter().map(Part::at_no_cost).collect()).await else {
            return Ok(());
        };
        let verdicts = parts.iter().zip(&mut decided.parts).zip(after.parts);
        for ((_, verdict), after) in verdicts.filter(|((part, _), _)| is_refunded(part)) {
            *verdict = after;
        }
        Ok(())
    }
}

impl Part {
    fn charged_now(&self) -> Vec<Charge> {
        match self.effect {
            Effect::Charge => self.charges.clone(),
            Effect::Check | Effect::Refund => self.at_no_cost(),
        }
    }

    fn at_no_cost(&self) -> Vec<Charge> {
        self.charges.iter().map(|charge| charge.clone().with_cost(0)).collect()
    }
}

fn is_used_up(row: &Row) -> bool {
    row.charge.rule.is_enforced() && row.decision.remaining == 0
}

/// The denial when a part that is only checked has nothing left: it is over its limit, and so is the whole.
fn deny_used_up(parts: &[Part], seen: Together) -> Together {
    let denied = |rows: &[Row]| {
        let deny = |row: &Row| {
            let mut row = row.clone();
            if is_used_up(&row) {
                row.decision.outcome = Outcome::Denied { retry_after: Some(row.until_more()) };
            }
            row
        };
        Verdict::new(rows.iter().map(deny).collect())
    };
    let checked = parts.iter().zip(&seen.parts).filter(|(part, _)| part.effect == Effect::Check);
    let whole: Vec<Row> = checked.flat_map(|(_, verdict)| verdict.rows().to_vec()).collect();
    let verdicts = parts.iter().zip(seen.parts).map(|(part, verdict)| match part.effect {
        Effect::Check => denied(verdict.rows()),
        Effect::Charge | Effect::Refund => verdict,
    });
    Together { whole: denied(&whole), parts: verdicts.collect() }
}
