//! Decides on the caller's thread what takes no call to a shared store, for hosts that must not wait.

use tollkeeper_core::{Charge, CostError, Request, Row, Verdict};

use super::{CheckError, Limiter};

/// What became of a request that was to be decided without a call.
#[derive(Debug)]
// Exhaustive on purpose: there is no third way.
pub enum Ahead {
    /// Decided: in memory, by a cached denial or by leased tokens.
    Decided(Verdict),
    /// Not decided, and nothing was charged: [`Limiter::check_charges`] asks the store.
    Open(Vec<Charge>),
}

impl Limiter {
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
        // Exceptions are applied elsewhere, and charges given back that rules with `mode: quota` deny together.
        if !self.store().exceptions().is_empty() || charges.iter().any(|charge| charge.rule.is_quota()) {
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
}
