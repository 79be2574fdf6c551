//! The exceptions in force, looked up for every request: one atomic load while there are none.
//!
//! The store keeps them for all instances that share it. This is an instance's copy, which stays in use while the
//! store is unreachable.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tollkeeper_core::{Charge, Exception, ExceptionKind, Key, Row, Rule, Span, Terms, Timestamp};

use super::error::StoreError;

/// Why an exception was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExceptionError {
    /// No such rule.
    #[error("rule: there is none named {0:?}; leave it out to mean every rule that has this key")]
    NoRule(String),
    /// An invalid field.
    #[error("{field}: {problem}")]
    Invalid {
        /// The field.
        field: String,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// The maximum is reached.
    #[error("there are already {} exceptions, which is the maximum; lift some, or change the rules", Exceptions::MOST)]
    TooMany,
    /// The store could not save it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an instance knows.
pub(crate) struct Exceptions {
    any: AtomicBool,
    by_key: ArcSwap<HashMap<String, Vec<Entry>>>,
    /// One change at a time.
    changing: Mutex<()>,
}

struct Entry {
    exception: Arc<Exception>,
    /// The resulting terms for each rule, by the rule's name.
    made: Mutex<HashMap<Arc<str>, Made>>,
}

/// A cached result: for this rule, and depending on whether the exception had ended, which of the rule's buckets it
/// is for and which terms apply.
struct Made {
    of: Arc<Rule>,
    was_over: bool,
    /// `None` if the rule cannot resolve the key: the exception does not apply.
    variant: Option<u16>,
    terms: Option<Arc<Terms>>,
}

/// A request's charges after exceptions were applied.
pub(crate) struct Applied {
    /// Those that are still to be decided, by position.
    pub(crate) open: Vec<(usize, Charge)>,
    /// Those decided by exceptions.
    pub(crate) settled: Vec<(usize, Row)>,
}

impl Exceptions {
    /// The maximum number.
    pub(crate) const MOST: usize = 10_000;
    /// A grant that has ended is remembered for this long, because buckets may still be written under it.
    const REMEMBERED: Span = Span::from_secs(86_400);

    pub(crate) fn new() -> Exceptions {
        Exceptions { any: AtomicBool::new(false), by_key: ArcSwap::default(), changing: Mutex::default() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// Whether it can be dropped without any effect.
    pub(crate) fn is_outdated(exception: &Exception, now: Timestamp) -> bool {
        let Some(until) = exception.until else { return false };
        match exception.kind {
            ExceptionKind::Grant(_) => until + Exceptions::REMEMBERED <= now,
            _ => until <= now,
        }
    }

    /// Replaces all exceptions.
    pub(crate) fn replace(&self, all: impl IntoIterator<Item = Exception>) {
        let mut by_key: HashMap<String, Vec<Entry>> = HashMap::new();
        for exception in all {
            let entries = by_key.entry(exception.key.clone()).or_default();
            entries.push(Entry { exception: Arc::new(exception), made: Mutex::default() });
            // An exception for one rule takes precedence over one for all rules.
            entries.sort_by_key(|entry| entry.exception.rule.is_none());
        }
        let any = !by_key.is_empty();
        self.by_key.store(Arc::new(by_key));
        self.any.store(any, Relaxed);
    }

    /// Stores one, removes one, and drops outdated ones.
    pub(crate) fn change(&self, keep: Option<Exception>, remove: Option<Exception>, now: Timestamp) {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_named =
            |one: &Exception, other: &Option<Exception>| other.as_ref().is_some_and(|other| other.is_same(one));
        let mut all = self.all();
        all.retain(|one| !Exceptions::is_outdated(one, now) && !is_named(one, &keep) && !is_named(one, &remove));
        self.replace(all.into_iter().chain(keep));
    }

    /// All that are known, including those that have ended.
    pub(crate) fn all(&self) -> Vec<Exception> {
        self.by_key.load().values().flatten().map(|entry| (*entry.exception).clone()).collect()
    }

    /// The terms for a key, if they differ from the rule's own.
    pub(crate) fn terms(&self, rule: &Arc<Rule>, key: &Key, now: Timestamp) -> Option<Arc<Terms>> {
        if self.is_empty() {
            return None;
        }
        let by_key = self.by_key.load();
        let applies = |entry: &&Entry| entry.exception.rule.as_deref().is_none_or(|name| name == rule.name());
        let found = by_key.get(&key.value)?.iter().filter(applies);
        // An API key that looks like an address is not the address.
        let found = found.filter_map(|entry| entry.terms(rule, key.variant, now).map(|terms| (entry, terms)));
        // An exception that has ended must not hide one that is in force.
        found.min_by_key(|(entry, _)| entry.exception.is_over(now))?.1
    }

    /// Applies the known exceptions to the charges of a request.
    pub(crate) fn apply(&self, charges: Vec<Charge>, now: Timestamp) -> Applied {
        let mut applied = Applied { open: Vec::with_capacity(charges.len()), settled: Vec::new() };
        for (position, charge) in charges.into_iter().enumerate() {
            let Some(terms) = self.terms(&charge.rule, &charge.key, now) else {
                applied.open.push((position, charge));
                continue;
            };
            let charge = charge.on(terms);
            match Row::settled(&charge, now) {
                Some(row) => applied.settled.push((position, row)),
                None => applied.open.push((position, charge)),
            }
        }
        applied
    }
}

impl Entry {
    /// The terms for a bucket of a rule; `None` if the exception is for another bucket.
    fn terms(&self, of: &Arc<Rule>, variant: u16, now: Timestamp) -> Option<Option<Arc<Terms>>> {
        let is_over = self.exception.is_over(now);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(of.name()).filter(|known| Arc::ptr_eq(&known.of, of) && known.was_over == is_over)
        {
            return (known.variant == Some(variant)).then(|| known.terms.clone());
        }
        let meant = of.key().bucket_of(&self.exception.named_key()).ok().map(|key| key.variant);
        let terms = self.exception.terms(of, now).map(Arc::new);
        made.insert(of.shared_name(), Made { of: of.clone(), was_over: is_over, variant: meant, terms: terms.clone() });
        (meant == Some(variant)).then_some(terms)
    }
}

/// Prints how many, not which.
impl fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exceptions").field("keys", &self.by_key.load().len()).finish()
    }
}
