//! Permits: slots of `concurrency` rules that are released on drop.

#[cfg(any(feature = "redis", feature = "tower"))]
mod renewal;

use std::sync::{Arc, Mutex, PoisonError};

use tollkeeper_core::{Charge, Hold, Request, Source, Verdict};

use crate::limiter::{CheckError, Limiter};
use crate::store::Store;
use crate::store::held::Held;

/// The slots that an admitted request holds until it ends. Dropping it releases every slot, however the request ends.
///
/// ```
/// use std::sync::Arc;
/// use tollkeeper::{Algorithm, Descriptor, Limiter, MemoryStore, Policy, RuleSpec};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let one_at_a_time = RuleSpec {
///     name: "exports".into(),
///     key: "{user_id}".into(),
///     limit: "1".into(),
///     algorithm: Algorithm::Concurrency,
///     ..RuleSpec::default()
/// };
/// let limiter = Arc::new(Limiter::new(Policy::new([one_at_a_time]).expect("valid"), MemoryStore::new()));
/// let request = Descriptor::new([("user_id", "42")]);
///
/// let (first, permit) = limiter.acquire(&request).await?;
/// let (second, _none) = limiter.acquire(&request).await?;
/// assert!(first.is_allowed() && !second.is_allowed());
///
/// drop(permit);
/// let (third, _permit) = limiter.acquire(&request).await?;
/// assert!(third.is_allowed());
/// # Ok::<(), tollkeeper::CheckError>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "dropping a permit releases its slots"]
pub struct Permit {
    /// `None` if no rule has slots.
    occupied: Option<Arc<Occupied>>,
    /// The task that renews the slots, if any.
    #[cfg(any(feature = "redis", feature = "tower"))]
    renewal: Option<tokio::task::AbortHandle>,
}

/// Slots, shared with the task that renews them.
#[derive(Debug)]
struct Occupied {
    limiter: Arc<Limiter>,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Empty during a renewal: the task has taken them.
    held: Vec<Slot>,
    /// The permit was dropped.
    is_over: bool,
}

#[derive(Debug)]
struct Slot {
    /// What was charged, under a rule that may have been removed since.
    charge: Charge,
    hold: Hold,
    /// What granted it, and so has to release it.
    source: Source,
}

impl Limiter {
    /// Decides a request as [`Limiter::check`] does, and holds its slots until the permit is dropped, or until their
    /// hold expires: use [`Permit::renewed`] for longer requests. The permit of a denied request is empty.
    pub async fn acquire(self: &Arc<Self>, request: &impl Request) -> Result<(Verdict, Permit), CheckError> {
        let verdict = self.check(request).await?;
        let permit = Permit::new(self, slots(&verdict));
        Ok((verdict, permit))
    }
}

fn slots(verdict: &Verdict) -> Vec<Slot> {
    let slot = |row: &tollkeeper_core::Row| {
        let hold = row.decision.hold?;
        Some(Slot { charge: row.charge.clone(), hold, source: row.source })
    };
    verdict.rows().iter().filter_map(slot).collect()
}

impl Permit {
    /// The slots of a reservation.
    pub(crate) fn of(limiter: &Arc<Limiter>, held: impl Iterator<Item = (Held, Source)>) -> Permit {
        let slot = |(Held { charge, receipt, .. }, source)| Slot {
            charge,
            hold: Hold { at: receipt.at, nth: receipt.nth },
            source,
        };
        Permit::new(limiter, held.map(slot).collect())
    }

    fn new(limiter: &Arc<Limiter>, held: Vec<Slot>) -> Permit {
        let occupied = (!held.is_empty()).then(|| {
            Arc::new(Occupied { limiter: limiter.clone(), slots: Mutex::new(Slots { held, is_over: false }) })
        });
        Permit {
            occupied,
            #[cfg(any(feature = "redis", feature = "tower"))]
            renewal: None,
        }
    }

    /// Whether it holds no slot.
    pub fn is_empty(&self) -> bool {
        self.occupied.is_none()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(occupied) = self.occupied.take() else { return };
        let held = {
            let mut slots = occupied.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.is_over = true;
            std::mem::take(&mut slots.held)
        };
        // A renewal in progress sees that the permit was dropped, and releases the slots.
        #[cfg(any(feature = "redis", feature = "tower"))]
        if !held.is_empty()
            && let Some(renewal) = &self.renewal
        {
            renewal.abort();
        }
        occupied.release_slots(held);
    }
}

impl Occupied {
    fn release_slots(&self, slots: Vec<Slot>) {
        for slot in slots {
            match self.limiter.store_of(slot.source) {
                // False means that the hold had expired; there is nothing to release.
                Store::Memory(memory) => _ = memory.release(slot.charge.bucket(), slot.hold),
                #[cfg(feature = "redis")]
                Store::Redis(redis) => release_later(redis.clone(), slot),
                // It never grants slots.
                #[cfg(feature = "redis")]
                Store::Unreachable(_) => {}
            }
        }
    }
}

/// A drop cannot wait for a server. Outside a runtime, or while the server is unreachable, the hold expires.
#[cfg(feature = "redis")]
fn release_later(redis: crate::store::RedisStore, slot: Slot) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { redis.release(slot.charge.bucket(), slot.hold).await });
    }
}

#[cfg(test)]
mod tests {
    use tollkeeper_core::{Algorithm, Descriptor, Enforcement, Policy, RuleSpec};

    use super::*;
    use crate::MemoryStore;

    fn concurrency(name: &str, limit: &str) -> RuleSpec {
        let algorithm = Algorithm::Concurrency;
        RuleSpec { name: name.into(), key: "global".into(), limit: limit.into(), algorithm, ..RuleSpec::default() }
    }

    fn limiter(rules: Vec<RuleSpec>) -> Arc<Limiter> {
        Arc::new(Limiter::new(Policy::new(rules).expect("valid rules"), MemoryStore::new()))
    }

    async fn acquire(limiter: &Arc<Limiter>) -> (Verdict, Permit) {
        limiter.acquire(&Descriptor::default()).await.expect("no cost attribute")
    }

    #[tokio::test]
    async fn every_slot_comes_back_also_of_shadow_rules() {
        let shadow = RuleSpec { mode: Enforcement::Shadow, ..concurrency("trial", "1") };
        let limiter = limiter(vec![concurrency("a", "1"), shadow]);
        for _ in 0..3 {
            let (verdict, permit) = acquire(&limiter).await;
            assert!(verdict.rows().iter().all(|row| row.decision.is_allowed()));
            assert!(!permit.is_empty());
        }
    }

    #[tokio::test]
    async fn a_denied_request_occupies_nothing() {
        let limiter = limiter(vec![concurrency("wide", "2"), concurrency("narrow", "1")]);
        let (_, held) = acquire(&limiter).await;
        let (denied, nothing) = acquire(&limiter).await;
        assert!(!denied.is_allowed() && nothing.is_empty());
        drop(nothing);
        assert!(!acquire(&limiter).await.0.is_allowed());
        drop(held);
        assert!(acquire(&limiter).await.0.is_allowed());
    }

    #[tokio::test]
    async fn a_rule_that_has_gone_gets_its_slot_back_too() {
        let limiter = limiter(vec![concurrency("a", "1")]);
        let (_, permit) = acquire(&limiter).await;
        limiter.replace_policy(Policy::default());
        drop(permit);
        limiter.replace_policy(Policy::new([concurrency("a", "1")]).expect("valid rules"));
        assert!(acquire(&limiter).await.0.is_allowed());
    }
}
