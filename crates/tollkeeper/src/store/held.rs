//! Charges that are still to be settled.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use tollkeeper_core::{Bucket, Charge, Decision, Hold, Receipt, Row, Source, Timestamp};

/// The longest that an estimate may stay unsettled.
pub const MAX_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// What one rule was charged as an estimate.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// What was charged, under a rule that may have been removed since.
    pub(crate) charge: Charge,
    pub(crate) receipt: Receipt,
    /// The bucket's refunds before this charge.
    pub(crate) refunded: u64,
}

/// Who a reservation is for. Stores give each owner a share of the room for reservations, so that one cannot take all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner<'o> {
    /// The client that it is charged to.
    Key(&'o str),
    /// The address that asked for it, possibly for many clients.
    Peer(&'o str),
}

impl Owner<'_> {
    /// An owner gets one part in this many of the room.
    pub(crate) fn share(&self) -> usize {
        match self {
            Owner::Key(_) => 10,
            Owner::Peer(_) => 2,
        }
    }

    /// A hash with a random key: a client cannot choose to share the room of another owner.
    pub(crate) fn id(&self) -> u64 {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        match self {
            Owner::Key(key) => SEED.hash_one(("key", key)),
            Owner::Peer(peer) => SEED.hash_one(("peer", peer)),
        }
    }
}

/// A store's answer to a request whose cost is an estimate.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) decisions: Vec<(Decision, Source)>,
    /// One per charge, if it took something.
    pub(crate) held: Vec<Option<Held>>,
}

impl Held {
    pub(crate) fn of(charge: &Charge, receipt: Receipt, refunded: Option<u64>) -> Held {
        let mut held = Held { charge: charge.clone(), receipt, refunded: refunded.unwrap_or(0) };
        if refunded.is_none() {
            held.give_nothing_back();
        }
        held
    }

    /// Prevents a refund: a bucket that has been full for long has nothing to refund.
    pub(crate) fn give_nothing_back(&mut self) {
        if let Some(after) = &mut self.receipt.after {
            *after = Bucket { full_at: Timestamp::default(), part: 0, tag: after.tag };
        }
    }

    /// For a charge that took nothing.
    pub(crate) fn nothing(charge: &Charge) -> Held {
        Held::of(charge, Receipt { cost: 0, at: Timestamp::default(), nth: 0, is_lease: false, after: None }, None)
    }

    /// For a row that was decided without a receipt: its slot is released, and usage beyond the estimate is charged. Nothing
    /// is refunded: no charge was made at that time.
    pub(crate) fn without_receipt(row: &Row) -> Option<Held> {
        let is_charged = matches!(row.source, Source::Store | Source::Lease) && row.decision.is_allowed();
        let hold = row.decision.hold.or(is_charged.then_some(Hold { at: Timestamp::default(), nth: 0 }))?;
        let receipt = Receipt { cost: row.charge.cost, at: hold.at, nth: hold.nth, is_lease: false, after: None };
        Some(Held::of(&row.charge, receipt, None))
    }
}
