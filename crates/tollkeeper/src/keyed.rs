//! The simplest API: one quota, any key, no rules, no async.

use std::hash::Hash;

use tollkeeper_core::{Decision, FailurePolicy, Hold, Outcome, Quota, QuotaError, Span, Timestamp};

use crate::clock::Clock;
use crate::store::{Id, Lookup, Newcomer, Place, Table, TooManyKeys};

/// Limits each key by the same quota.
///
/// ```
/// use tollkeeper::Quota;
///
/// let limiter = tollkeeper::keyed(Quota::per_second(50).burst(100))?;
/// assert!(limiter.check("192.0.2.7").is_allowed());
/// assert_eq!(limiter.check("192.0.2.7").remaining, 98);
/// # Ok::<(), tollkeeper::QuotaError>(())
/// ```
pub fn keyed<Q>(quota: Q) -> Result<Keyed, QuotaError>
where
    Q: TryInto<Quota>,
    QuotaError: From<Q::Error>,
{
    Ok(Keyed {
        quota: quota.try_into()?,
        clock: Clock::system(),
        table: Table::new(Table::DEFAULT_MAX_KEYS, Table::DEFAULT_MAX_LOG_BYTES, 1),
        on_full: FailurePolicy::Local,
    })
}

/// One quota for every key; [`keyed`] makes one. Share it by reference or behind an [`Arc`](std::sync::Arc).
///
/// A key is anything that can be hashed, and is identified by a keyed 128-bit hash: `"a"` and `String::from("a")` are
/// the same key, because they hash alike.
#[derive(Debug)]
pub struct Keyed {
    quota: Quota,
    clock: Clock,
    table: Table,
    on_full: FailurePolicy,
}

impl Keyed {
    /// For at most this many keys, instead of a million. Call it while building: it discards all counts.
    ///
    /// # Panics
    /// When the system does not have that much memory; [`Keyed::try_with_max_keys`] returns an error instead.
    #[must_use]
    pub fn with_max_keys(self, max_keys: usize) -> Keyed {
        self.try_with_max_keys(max_keys).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`Keyed::with_max_keys`], with an error when the system does not have enough memory for this many keys.
    pub fn try_with_max_keys(self, max_keys: usize) -> Result<Keyed, TooManyKeys> {
        Ok(Keyed { table: Table::try_new(max_keys, self.table.max_log_bytes(), 1)?, ..self })
    }

    /// With logs of at most this many bytes in total, instead of 64 MiB: `sliding_window_log` and `concurrency`
    /// remember every admitted request. Call it while building: it discards all counts.
    #[must_use]
    pub fn with_max_log_bytes(self, max_log_bytes: usize) -> Keyed {
        Keyed { table: Table::new(self.table.max_keys(), max_log_bytes, 1), ..self }
    }

    /// On another clock, such as a [`ManualClock`](crate::ManualClock).
    #[must_use]
    pub fn with_clock(self, clock: impl Into<Clock>) -> Keyed {
        Keyed { clock: clock.into(), ..self }
    }

    /// What a new key gets when the table is full and every key in it is still limited. By default (`local`) it is
    /// counted in one of 64 buckets that such keys share, so that a flood of new keys limits itself. With `closed` it
    /// is denied and asked to retry in a second, and with `open` it passes without being counted. Keys already in the
    /// table are not affected.
    #[must_use]
    pub fn on_full(self, on_full: FailurePolicy) -> Keyed {
        Keyed { on_full, ..self }
    }

    /// Decides a request of cost 1.
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.check_cost(key, 1)
    }

    /// Decides a request of any cost; 0 peeks.
    #[inline]
    pub fn check_cost<K: Hash + ?Sized>(&self, key: &K, cost: u32) -> Decision {
        let read = self.clock.now();
        self.charge(self.table.id_of(key), cost, read)
    }

    /// Decides many requests of cost 1: the same answers in the same order as one by one, but faster, because memory
    /// for several keys is fetched at once.
    pub fn check_many<K: Hash>(&self, keys: &[K]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(keys.len());
        self.check_many_into(keys, &mut decisions);
        decisions
    }

    /// Like [`check_many`](Keyed::check_many), appending the answers to `decisions`.
    pub fn check_many_into<K: Hash>(&self, keys: &[K], decisions: &mut Vec<Decision>) {
        for keys in keys.chunks(Table::BATCH) {
            let mut ids = [Id::default(); Table::BATCH];
            for (id, key) in ids.iter_mut().zip(keys) {
                *id = self.table.id_of(key);
                self.table.prefetch(*id);
            }
            // While the memory is fetched.
            let mut read = self.clock.now();
            decisions.reserve(keys.len());
            for id in &ids[..keys.len()] {
                // The two paths do not join: see `Table::charge`.
                match self.table.charge_known_bucket(*id, &self.quota, 1, read, Lookup::OfMany) {
                    Some(decision) => decisions.push(decision),
                    None => {
                        decisions.push(self.charge_slowly(*id, 1));
                        // That was decided later than the clock was read, and nothing after it may be decided before.
                        read = self.clock.now();
                    }
                }
            }
        }
    }

    /// The answer to a request of cost 1 now, without charging it: `remaining` does not include that request.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.table.peek(self.place(self.table.id_of(key)), &self.clock)
    }

    /// Resets a key; false when there was nothing to reset.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.table.reset(self.table.id_of(key), &self.quota, &self.clock)
    }

    /// Releases the slot of an admitted request; false when it had expired or was released before. For quotas of
    /// [`Quota::concurrent`].
    pub fn release<K: Hash + ?Sized>(&self, key: &K, hold: Hold) -> bool {
        self.table.release(self.place(self.table.id_of(key)), hold, &self.clock)
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The number of keys kept, some of which may be idle by now.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no key is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that the limiter takes: all entries, used or not, and the current logs.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    #[inline(always)]
    fn charge(&self, id: Id, cost: u32, read: Timestamp) -> Decision {
        match self.table.charge_known_bucket(id, &self.quota, cost, read, Lookup::Single) {
            Some(decision) => decision,
            None => self.charge_slowly(id, cost),
        }
    }

    #[inline(never)]
    fn charge_slowly(&self, id: Id, cost: u32) -> Decision {
        let newcomer = match self.on_full {
            FailurePolicy::Local => Newcomer::Shares,
            FailurePolicy::Open | FailurePolicy::Closed => Newcomer::Refused,
        };
        let charged = self.table.charge_slowly(self.place(id), cost, newcomer, &self.clock);
        charged.unwrap_or_else(|_| self.without_store())
    }

    fn place(&self, id: Id) -> Place<'_> {
        Place { id, rule: "", quota: &self.quota }
    }

    #[cold]
    #[inline(never)]
    fn without_store(&self) -> Decision {
        let limit = self.quota.limit();
        let (outcome, remaining) = match self.on_full {
            FailurePolicy::Open => (Outcome::Allowed { delay: Span::ZERO }, limit),
            FailurePolicy::Local | FailurePolicy::Closed => (Outcome::Denied { retry_after: Some(Span::SECOND) }, 0),
        };
        Decision { outcome, limit, remaining, reset_after: Span::ZERO, hold: None }
    }
}
