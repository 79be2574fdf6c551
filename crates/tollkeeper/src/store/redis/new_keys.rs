//! Requests that need new keys of a server that is [full](super::full). These charges are [unavailable](StoreError::PartlyUnavailable), so that
//! each rule's failure policy decides about them, and all other requests of the call are sent again.

use std::sync::atomic::Ordering::Relaxed;

use super::batch::Batch;
use super::callers::{Deliveries, Waiter};
use super::full;
use super::node::Refusal;
use super::queue::Group;
use super::shared::Shared;
use crate::store::error::StoreError;

impl Shared {
    /// The answer to a request some of whose keys would be new.
    pub(super) fn refuse(&self, charges: Vec<usize>) -> Refusal {
        self.full.fetch_add(charges.len() as u64, Relaxed);
        Refusal::Failed(StoreError::PartlyUnavailable { charges, reason: full::REASON.into() })
    }

    /// Answers the requests that need these keys; the others are to be sent again.
    pub(super) fn refuse_new(&self, group: Group, keys: &[usize], deliveries: &mut Deliveries) -> Option<Group> {
        let Group { batch, waiting } = group;
        let new = batch.charges_of(keys);
        let mut rest: Vec<Option<Vec<Waiter>>> = Vec::with_capacity(waiting.len());
        for (waiting, charges) in waiting.into_iter().zip(&new) {
            if charges.is_empty() {
                rest.push(Some(waiting));
                continue;
            }
            rest.push(None);
            let refused = |waiter| (waiter, Err(self.refuse(charges.clone())));
            deliveries.send(waiting.into_iter().map(refused));
        }
        let batch: Batch = batch.only(|entry| rest[entry].is_some());
        let waiting: Vec<Vec<Waiter>> = rest.into_iter().flatten().collect();
        (!waiting.is_empty()).then_some(Group { batch, waiting })
    }
}
