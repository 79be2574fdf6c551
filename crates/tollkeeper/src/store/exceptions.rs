//! The exceptions in force, as every request looks at them: one atomic load while there are none.
//!
//! The store keeps them, so that all who share it follow; this is what an instance knows of them, and goes on with while
//! the store is away.

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
    /// There is no such rule.
    #[error("rule: there is none named {0:?}; leave it out to mean every rule that has this key")]
    NoRule(String),
    /// A field says something that cannot be.
    #[error("{field}: {problem}")]
    Invalid {
        /// Which one.
        field: String,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// There are as many as can be.
    #[error("there are {} exceptions already, which is the most; lift some, or change the rules", Exceptions::MOST)]
    TooMany,
    /// The store could not keep it.
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
    /// The terms that it makes for rules, by name.
    made: Mutex<HashMap<Arc<str>, Made>>,
}

/// For which rule, whether the exception was over, which of the rule's buckets is meant, and what holds for it then.
struct Made {
    of: Arc<Rule>,
    was_over: bool,
    /// `None` where the rule cannot tell which: the exception does not apply.
    variant: Option<u16>,
    terms: Option<Arc<Terms>>,
}

/// What becomes of a request's charges.
pub(crate) struct Applied {
    /// Those that are still to be decided, by position.
    pub(crate) open: Vec<(usize, Charge)>,
    /// Those that exceptions settle.
    pub(crate) settled: Vec<(usize, Row)>,
}

impl Exceptions {
    /// How many there can be.
    pub(crate) const MOST: usize = 10_000;
    /// A grant that is over is remembered for so long, because buckets may still be written by it.
    const REMEMBERED: Span = Span::from_secs(86_400);

    pub(crate) fn new() -> Exceptions {
        Exceptions { any: AtomicBool::new(false), by_key: ArcSwap::default(), changing: Mutex::default() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// Whether nothing would change if this were forgotten.
    pub(crate) fn is_outdated(exception: &Exception, now: Timestamp) -> bool {
        let Some(until) = exception.until else { return false };
        match exception.kind {
            ExceptionKind::Grant(_) => until + Exceptions::REMEMBERED <= now,
            _ => until <= now,
        }
    }

    /// Puts these in force instead of those before.
    pub(crate) fn replace(&self, all: impl IntoIterator<Item = Exception>) {
        let mut by_key: HashMap<String, Vec<Entry>> = HashMap::new();
        for exception in all {
            let entries = by_key.entry(exception.key.clone()).or_default();
            entries.push(Entry { exception: Arc::new(exception), made: Mutex::default() });
            // What is said of one rule goes before what is said of all.
            entries.sort_by_key(|entry| entry.exception.rule.is_none());
        }
        let any = !by_key.is_empty();
        self.by_key.store(Arc::new(by_key));
        self.any.store(any, Relaxed);
    }

    /// Keeps one, removes one, and forgets what is outdated.
    pub(crate) fn change(&self, keep: Option<Exception>, remove: Option<Exception>, now: Timestamp) {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_named =
            |one: &Exception, other: &Option<Exception>| other.as_ref().is_some_and(|other| other.is_same(one));
        let mut all = self.all();
        all.retain(|one| !Exceptions::is_outdated(one, now) && !is_named(one, &keep) && !is_named(one, &remove));
        self.replace(all.into_iter().chain(keep));
    }

    /// All that are known, also those that are over.
    pub(crate) fn all(&self) -> Vec<Exception> {
        self.by_key.load().values().flatten().map(|entry| (*entry.exception).clone()).collect()
    }

    /// What holds for a key instead of what the rule says.
    pub(crate) fn terms(&self, rule: &Arc<Rule>, key: &Key, now: Timestamp) -> Option<Arc<Terms>> {
        if self.is_empty() {
            return None;
        }
        let by_key = self.by_key.load();
        let applies = |entry: &&Entry| entry.exception.rule.as_deref().is_none_or(|name| name == rule.name());
        let found = by_key.get(&key.value)?.iter().filter(applies);
        // An API key that looks like an address is not the address.
        let found = found.filter_map(|entry| entry.terms(rule, key.variant, now).map(|terms| (entry, terms)));
        // One that is over must not hide another that is not.
        found.min_by_key(|(entry, _)| entry.exception.is_over(now))?.1
    }

    /// Applies what is known to the charges of a request.
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
    /// What holds for a bucket of a rule; `None` where another one is meant.
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

/// How many, not which.
impl fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exceptions").field("keys", &self.by_key.load().len()).finish()
    }
}
