//! Keeps slots for longer than their hold.
//!
//! Holds expire so that a process that dies frees its slots. A permit that lives on is renewed three times per hold:
//! one renewal may be late or fail, and the slot is still held.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{Occupied, Permit, Slot};

impl Permit {
    /// Renews the slots for as long as the permit lives, so that a response may take longer than a rule's `hold`.
    /// Needs a tokio runtime with time; without one the hold expires as usual.
    ///
    /// Each renewal is one atomic step of the store, so it never admits more requests. If a hold expires anyway,
    /// because the store was unreachable for too long, the slot is lost, and not taken from its new holder.
    pub fn renewed(mut self) -> Permit {
        if let (Some(occupied), Ok(runtime), None) =
            (&self.occupied, tokio::runtime::Handle::try_current(), &self.renewal)
        {
            self.renewal = Some(runtime.spawn(renew(occupied.clone(), occupied.interval())).abort_handle());
        }
        self
    }
}

async fn renew(occupied: Arc<Occupied>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let mut renewed = Vec::new();
        for slot in occupied.take() {
            renewed.extend(occupied.renew(slot).await);
        }
        if !occupied.put_back(renewed) {
            return;
        }
    }
}

impl Occupied {
    /// A third of the shortest hold.
    fn interval(&self) -> Duration {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let shortest = slots.held.iter().map(|slot| slot.charge.quota().period().as_duration()).min();
        (shortest.unwrap_or_default() / 3).max(Duration::from_millis(1))
    }

    fn take(&self) -> Vec<Slot> {
        std::mem::take(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner).held)
    }

    /// The slot under its new name; `None` when it is lost.
    async fn renew(&self, slot: Slot) -> Option<Slot> {
        match self.limiter.store_of(slot.source).renew(slot.charge.bucket(), slot.hold).await {
            Ok(Some(hold)) => Some(Slot { hold, ..slot }),
            Ok(None) => None,
            // Try again next time.
            Err(_) => Some(slot),
        }
    }

    /// Puts the renewed slots back; whether there is anything left to renew. If the permit was dropped, they are
    /// released.
    fn put_back(&self, renewed: Vec<Slot>) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_over {
            drop(slots);
            self.release_slots(renewed);
            return false;
        }
        slots.held = renewed;
        !slots.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tollkeeper_core::{Algorithm, Descriptor, Policy, RuleSpec, Span, Timestamp};

    use super::*;
    use crate::{Limiter, ManualClock, MemoryStore};

    const HOLD: Span = Span::from_secs(60);

    fn one_at_a_time() -> (Arc<Limiter>, ManualClock) {
        let rule = RuleSpec {
            name: "one".into(),
            key: "global".into(),
            limit: "1".into(),
            hold: Some("60s".into()),
            algorithm: Algorithm::Concurrency,
            ..RuleSpec::default()
        };
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let store = MemoryStore::with(10, clock.clone());
        (Arc::new(Limiter::new(Policy::new([rule]).expect("a valid rule"), store)), clock)
    }

    async fn acquire(limiter: &Arc<Limiter>) -> (bool, Permit) {
        let (verdict, permit) = limiter.acquire(&Descriptor::default()).await.expect("no cost attribute");
        (verdict.is_allowed(), permit)
    }

    /// Advances time for the store and for the runtime.
    async fn pass(clock: &ManualClock, span: Span) {
        clock.advance(span);
        tokio::time::sleep(span.as_duration()).await;
    }

    /// A stream that took longer than its rule's hold let other requests in beside it.
    #[tokio::test(start_paused = true)]
    async fn a_slot_is_held_for_as_long_as_the_permit_lives() {
        let (limiter, clock) = one_at_a_time();
        let (_, permit) = acquire(&limiter).await;
        let permit = permit.renewed();
        for _ in 0..20 {
            pass(&clock, Span::from_secs(21)).await;
            assert!(!acquire(&limiter).await.0, "somebody got in beside it");
        }
        drop(permit);
        assert!(acquire(&limiter).await.0, "it is free at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_lost_is_not_taken_from_its_next_owner() {
        let (limiter, clock) = one_at_a_time();
        let (_, late) = acquire(&limiter).await;
        let late = late.renewed();
        // The process was paused.
        clock.advance(HOLD);
        let (is_allowed, next) = acquire(&limiter).await;
        assert!(is_allowed, "the hold had ended");
        pass(&clock, Span::from_secs(21)).await;
        drop(late);
        assert!(!acquire(&limiter).await.0, "the next owner still has it");
        drop(next);
        assert!(acquire(&limiter).await.0);
    }

    #[tokio::test(start_paused = true)]
    async fn without_renewal_a_hold_ends() {
        let (limiter, clock) = one_at_a_time();
        let (_, _permit) = acquire(&limiter).await;
        pass(&clock, HOLD).await;
        assert!(acquire(&limiter).await.0);
    }
}
