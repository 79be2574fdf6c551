//! Single buckets: shown, reset, released and refunded, whatever the rules of a request would be.

use std::sync::Arc;

use tollkeeper_core::{Charge, Hold, Key, Rule};

use super::{Inspected, Limiter};
use crate::store::StoreError;

impl Limiter {
    /// The state of a rule's buckets with this key, without changing them; `None` when there is no such rule.
    ///
    /// A key of `{api_key|ip}` names one bucket per alternative: all possible ones are returned, that of the first
    /// alternative first.
    pub async fn inspect(&self, rule: &str, key: &str) -> Option<Result<Vec<Inspected>, StoreError>> {
        let rule = self.policy().rule(rule)?.clone();
        let mut buckets = Vec::new();
        for key in keys(&rule, key) {
            let charge = self.charge_of(rule.clone(), key);
            match self.store().inspect(charge.bucket()).await {
                Ok(decision) => buckets.push(Inspected { charge, decision }),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(buckets))
    }

    /// Resets a bucket of a rule; `Ok(false)` when there was nothing to reset, `None` when there is no such rule.
    /// [`KeyTemplate::bucket_of`](tollkeeper_core::KeyTemplate::bucket_of) resolves a text to a bucket.
    pub async fn reset(&self, rule: &str, key: &Key) -> Option<Result<bool, StoreError>> {
        let rule = self.policy().rule(rule)?.clone();
        Some(self.store().reset(self.charge_of(rule, key.clone()).bucket()).await)
    }

    /// Resets the bucket of a charge, which need not be of a rule in force; `Ok(false)` when there was none.
    pub async fn reset_charge(&self, charge: &Charge) -> Result<bool, StoreError> {
        self.store().reset(charge.bucket()).await
    }

    /// Releases a `concurrency` slot; `Ok(false)` when it was already free, `None` when there is no such rule.
    pub async fn release(&self, rule: &str, key: &Key, hold: Hold) -> Option<Result<bool, StoreError>> {
        let rule = self.policy().rule(rule)?.clone();
        Some(self.store().release(self.charge_of(rule, key.clone()).bucket(), hold).await)
    }

    /// Refunds what these charges cost, as far as it still counts: for callers that charge first and learn the usage
    /// later. A key never has more left than its limit.
    pub async fn refund(&self, charges: &[Charge]) -> Result<(), StoreError> {
        for charge in charges {
            let bucket = self.charge_of(charge.rule.clone(), charge.key.clone());
            self.store().refund(bucket.bucket(), charge.cost).await?;
        }
        Ok(())
    }

    /// A charge of cost 0 to a key of a rule, with the exception in force for it, whose quota applies.
    pub fn charge_of(&self, rule: Arc<Rule>, key: Key) -> Charge {
        let terms = self.store().exceptions().terms(&rule, &key, self.store().now());
        let charge = Charge::new(rule, key, 0);
        match terms {
            Some(terms) => charge.on(terms),
            None => charge,
        }
    }
}

fn keys(rule: &Rule, value: &str) -> impl Iterator<Item = Key> {
    (0..rule.key().variants()).map(move |variant| Key { variant, value: value.to_string() })
}
