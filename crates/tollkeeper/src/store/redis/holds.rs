//! Estimates that are settled later, and the small records for finding them.
//!
//! The refund of a bucket is bounded by its refunds since the charge of what was charged before (see `State::settle`), so
//! refunds are counted beside the bucket for as long as an estimate may be unsettled. The count is read by the call that
//! charges: no refund can come in between.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tollkeeper_core::{BucketRef, Charge, Source};

use super::batch::{Ask, Booked, counts_refunds};
use super::node::Refusal;
use super::script::{Call, OWN, SETTLE, WATCH};
use super::shared::{Shared, from};
use super::{RedisStore, stored};
use crate::store::error::StoreError;
use crate::store::held::{Held, Owner, Reserved};

impl RedisStore {
    /// Decides as [`RedisStore::charge`] does, always in the store itself, so that the charges can be corrected.
    pub(crate) async fn reserve(&self, charges: &[Charge], hold: Duration) -> Result<Reserved, StoreError> {
        self.0.watch(charges, 2 * hold).await?;
        let decided = self.0.decide(charges, Ask::Estimate).await?;
        let booked = decided.booked.into_iter().chain(std::iter::repeat(None));
        let held = charges.iter().zip(booked).map(|(charge, booked)| {
            let Booked { receipt, refunded } = booked?;
            Some(Held::of(charge, receipt, refunded))
        });
        let held = held.collect();
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
                (shared.key(bucket), shared.refunded_key(bucket), *bucket.quota, *receipt, *refunded, *cost)
            });
            let settled: Vec<_> = settled.collect();
            let call = move |when| {
                let settled = settled.iter().map(|(key, counter, quota, receipt, refunded, cost)| {
                    (key.clone(), counter.clone(), quota, *receipt, *refunded, *cost)
                });
                Call::settle(settled, when)
            };
            let found: Vec<u32> = self.0.run_at(part.slot, &SETTLE, call).await?;
            for (position, found) in part.positions().zip(found) {
                back[position] = found;
            }
        }
        if let Some(ahead) = self.0.ahead.as_ref().filter(|_| back.iter().any(|back| *back > 0)) {
            ahead.denials.forget_all();
        }
        Ok(back)
    }

    /// Keeps a record for a limited time, if each of its owners has room for it.
    pub(crate) async fn keep(
        &self,
        id: &str,
        record: &[u8],
        owners: &[Owner<'_>],
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let mut owned = Owned { id: id.to_string(), places: places(record.len()), owners: Vec::new() };
        for owner in owners {
            let key = stored::owner_key(&self.0.namespace, owner);
            if !self.0.own(&key, &owned, *owner, lifetime).await? {
                self.0.disown(owned);
                return Err(StoreError::TooManyReservations { whose: "of this client" });
            }
            owned.owners.push(key);
        }
        let key = self.0.record_key(id);
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(owned.beside(record)).arg("PX").arg(lifetime.as_millis().max(1) as u64);
        self.0.command(&key, &command).await
    }

    /// Takes a record and removes it.
    pub(crate) async fn claim(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.0.record_key(id);
        let kept: Option<Vec<u8>> = self.0.command(&key, redis::cmd("GETDEL").arg(&key)).await?;
        Ok(kept.map(|kept| {
            let (owned, record) = Owned::apart(id, kept);
            self.0.disown(owned);
            record
        }))
    }

    /// What all instances call by this name: the first value that one of them offered.
    pub(crate) async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let key = format!("{}:shared:{name}", self.0.namespace);
        let mut read = redis::cmd("GET");
        read.arg(&key);
        if let Some(agreed) = self.0.command(&key, &read).await? {
            return Ok(agreed);
        }
        // If another one was first, nothing is set.
        let _: Option<String> = self.0.command(&key, redis::cmd("SET").arg(&key).arg(offer).arg("NX")).await?;
        let agreed: Option<Vec<u8>> = self.0.command(&key, &read).await?;
        Ok(agreed.unwrap_or_else(|| offer.to_vec()))
    }
}

impl Shared {
    /// Starts tracking the refunds of these buckets, except where the server is full.
    async fn watch(self: &Arc<Self>, charges: &[Charge], lifetime: Duration) -> Result<(), StoreError> {
        let lifetime = lifetime.as_millis().max(1).to_string().into_bytes();
        for part in self.parts(charges) {
            let counted = part.charges.iter().filter(|charge| counts_refunds(charge));
            let keys: Vec<Arc<str>> = counted.map(|charge| self.refunded_key(charge.bucket()).into()).collect();
            if keys.is_empty() {
                continue;
            }
            let watch = |keys| {
                let call = Call { keys, arguments: vec![lifetime.clone()] };
                self.run::<Value>(part.slot, &WATCH, call)
            };
            match watch(keys.clone()).await {
                // The slot is migrating: a single key is always on one node.
                Err(Refusal::TryAgain) => {
                    for key in keys {
                        watch(vec![key]).await?;
                    }
                }
                watched => _ = watched?,
            }
        }
        Ok(())
    }

    /// Takes the record's places among those of an owner; false if they are all taken.
    async fn own(
        self: &Arc<Self>,
        key: &str,
        owned: &Owned,
        owner: Owner<'_>,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        let numbers = [owned.places as u128, lifetime.as_millis().max(1), (PLACES / owner.share()) as u128];
        let numbers = numbers.iter().map(|number| number.to_string().into_bytes());
        let arguments = std::iter::once(owned.id.clone().into_bytes()).chain(numbers).collect();
        let call = Call { keys: vec![key.into()], arguments };
        let is_owned: i64 = self.run(self.nodes.slot(key), &OWN, call).await?;
        Ok(is_owned > 0)
    }

    /// Frees the places of a record, in the background: nobody waits for that, and they are free when it expires anyway.
    fn disown(self: &Arc<Self>, owned: Owned) {
        let shared = self.clone();
        self.io.spawn(async move {
            for owner in &owned.owners {
                let mut command = redis::cmd("ZREM");
                command.arg(owner);
                (1..=owned.places).for_each(|place| _ = command.arg(format!("{}:{place}", owned.id)));
                let _: Result<i64, StoreError> = shared.command(owner, &command).await;
            }
        });
    }

    pub(super) fn refunded_key(&self, bucket: BucketRef<'_>) -> String {
        stored::refunded_key(&self.namespace, bucket.rule, bucket.key)
    }

    fn record_key(&self, id: &str) -> String {
        format!("{}:reservation:{id}", self.namespace)
    }
}

/// How many places there are for the records of all owners; each gets a share.
const PLACES: usize = 100_000;

/// A record takes a place for each of these bytes that it begins.
const BYTES_PER_PLACE: usize = 640;

fn places(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_PLACE).max(1)
}

/// Whose a record is, written in front of it: `owned PLACES KEY KEY\n`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owned {
    id: String,
    places: usize,
    /// The keys of the owners' places.
    owners: Vec<String>,
}

impl Owned {
    const MARK: &str = "owned ";

    fn beside(&self, record: &[u8]) -> Vec<u8> {
        let owners: String = self.owners.iter().map(|owner| format!(" {owner}")).collect();
        let mut all = format!("{}{}{owners}\n", Owned::MARK, self.places).into_bytes();
        all.extend_from_slice(record);
        all
    }

    /// Also of a record that has nothing in front of it, as an earlier version wrote it.
    fn apart(id: &str, kept: Vec<u8>) -> (Owned, Vec<u8>) {
        let Some(end) =
            kept.iter().position(|byte| *byte == b'\n').filter(|_| kept.starts_with(Owned::MARK.as_bytes()))
        else {
            return (Owned::default(), kept);
        };
        let head = String::from_utf8_lossy(&kept[Owned::MARK.len()..end]).into_owned();
        let mut words = head.split(' ');
        let places = words.next().and_then(|places| places.parse().ok()).unwrap_or(0).min(PLACES);
        let owned = Owned { id: id.to_string(), places, owners: words.map(str::to_string).collect() };
        (owned, kept[end + 1..].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_behind_its_owners_and_without_any() {
        let owners = vec!["tollkeeper:o{0a}key".to_string(), "tollkeeper:o{0b}peer".to_string()];
        let owned = Owned { id: "7".into(), places: 3, owners };
        assert_eq!(Owned::apart("7", owned.beside(b"{\n}")), (owned, b"{\n}".to_vec()));
        let nobody = Owned { id: "7".into(), places: 1, owners: Vec::new() };
        assert_eq!(Owned::apart("7", nobody.beside(b"owned ")), (nobody, b"owned ".to_vec()));
        assert_eq!(Owned::apart("7", b"{\"rows\":\n[]}".to_vec()).1, b"{\"rows\":\n[]}");
    }

    #[test]
    fn long_records_take_more_places() {
        assert_eq!([0, 1, 640, 641, 64_000].map(places), [1, 1, 1, 2, 100]);
    }
}
