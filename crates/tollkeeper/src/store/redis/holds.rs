//! Estimates that are settled later, and the small records for finding them.
//!
//! The refund of a bucket is bounded by all of its refunds since the charge (see `State::settle`), so refunds are
//! counted beside the bucket for as long as an estimate may be unsettled. The count is read before the charge: a
//! refund in between is counted as if it came after, which can only make a later refund smaller.

use std::sync::Arc;
use std::time::Duration;

use tollkeeper_core::{Algorithm, BucketRef, Charge, Source};

use super::batch::Ask;
use super::script::{Call, SETTLE, WATCH};
use super::shared::{Shared, from};
use super::{RedisStore, stored};
use crate::store::error::StoreError;
use crate::store::held::{Held, Reserved};

impl RedisStore {
    /// Decides as [`RedisStore::charge`] does, always in the store itself, so that the charges can be corrected.
    pub(crate) async fn reserve(&self, charges: &[Charge], hold: Duration) -> Result<Reserved, StoreError> {
        let refunded = self.0.watch(charges, 2 * hold).await?;
        let decided = self.0.decide(charges, Ask::Reserve).await?;
        let receipts = decided.receipts.into_iter().chain(std::iter::repeat(None));
        let held = charges.iter().zip(receipts).zip(refunded);
        let held = held.map(|((charge, receipt), refunded)| Held::of(charge, receipt?, refunded).into()).collect();
        Ok(Reserved { decisions: from(Source::Store, decided.decisions), held })
    }

    /// Settles charges, once: a call whose outcome is unknown is not repeated. Returns how much was refunded.
    pub(crate) async fn settle(&self, held: &[(Held, u32)]) -> Result<Vec<u32>, StoreError> {
        let mut back = vec![0; held.len()];
        let charges: Vec<Charge> = held.iter().map(|(held, cost)| held.charge.clone().with_cost(*cost)).collect();
        for part in self.0.parts(&charges) {
            let settled = part.positions().map(|position| {
                let (Held { charge, receipt, refunded }, cost) = &held[position];
                let (bucket, shared) = (charge.bucket(), &self.0);
                (shared.key(bucket), shared.refunded_key(bucket), bucket.quota, *receipt, *refunded, *cost)
            });
            let call = Call::settle(settled, self.0.given_time());
            let found: Vec<u32> = self.0.run(part.slot, &SETTLE, call).await?;
            for (position, found) in part.positions().zip(found) {
                back[position] = found;
            }
        }
        if let Some(ahead) = self.0.ahead.as_ref().filter(|_| back.iter().any(|back| *back > 0)) {
            ahead.denials.forget_all();
        }
        Ok(back)
    }

    /// Keeps a record for a limited time.
    pub(crate) async fn keep(&self, id: &str, record: &[u8], lifetime: Duration) -> Result<(), StoreError> {
        let key = self.0.record_key(id);
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(record).arg("PX").arg(lifetime.as_millis().max(1) as u64);
        self.0.command(&key, &command).await
    }

    /// Takes a record and removes it.
    pub(crate) async fn claim(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.0.record_key(id);
        self.0.command(&key, redis::cmd("GETDEL").arg(&key)).await
    }
}

impl Shared {
    /// Starts tracking the refunds of these buckets, and returns what was counted before; `None` where the server is full and
    /// cannot track them, so that nothing can be refunded.
    async fn watch(self: &Arc<Self>, charges: &[Charge], lifetime: Duration) -> Result<Vec<Option<u64>>, StoreError> {
        let mut counts = vec![Some(0); charges.len()];
        let lifetime = lifetime.as_millis().max(1).to_string().into_bytes();
        for part in self.parts(charges) {
            let positions: Vec<usize> = part.positions().filter(|position| is_amount(&charges[*position])).collect();
            if positions.is_empty() {
                continue;
            }
            let keys = positions.iter().map(|position| &charges[*position]);
            let keys = keys.map(|charge| self.refunded_key(charge.bucket())).collect();
            let call = Call { keys, arguments: vec![lifetime.clone()] };
            let found: Vec<i64> = self.run(part.slot, &WATCH, call).await?;
            for (position, count) in positions.into_iter().zip(found) {
                counts[position] = u64::try_from(count).ok();
            }
        }
        Ok(counts)
    }

    pub(super) fn refunded_key(&self, bucket: BucketRef<'_>) -> String {
        stored::refunded_key(&self.namespace, bucket.rule, bucket.key)
    }

    fn record_key(&self, id: &str) -> String {
        format!("{}:reservation:{id}", self.namespace)
    }
}

/// A slot is released, and cannot be released twice.
fn is_amount(charge: &Charge) -> bool {
    charge.quota().algorithm() != Algorithm::Concurrency
}
