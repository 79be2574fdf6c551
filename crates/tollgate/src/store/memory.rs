//! The embedded store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tollgate_core::{Charge, Decision, Hold, Key, Rule, State, decide, decide_all};

use super::StoreError;
use crate::clock::Clock;

/// Keeps state in this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    states: Mutex<HashMap<(String, Key), State>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// How many keys are kept unless told.
    pub const DEFAULT_MAX_KEYS: usize = 1_000_000;

    /// A store on the machine's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with(Self::DEFAULT_MAX_KEYS, Clock::system())
    }

    /// A store for so many keys on this clock.
    pub fn with(_max_keys: usize, clock: impl Into<Clock>) -> MemoryStore {
        MemoryStore { clock: clock.into(), states: Mutex::default() }
    }

    /// The store's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many keys are kept, some of which may be idle by now.
    pub fn len(&self) -> usize {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decides all charges together: all or nothing.
    pub fn charge(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let id = |charge: &Charge| (charge.rule.name.to_string(), charge.key.clone());
        let current: Vec<State> = charges.iter().map(|c| states.get(&id(c)).cloned().unwrap_or_default()).collect();
        let decided = decide_all(charges, &current, now);
        let mut decisions = Vec::new();
        for ((charge, mut state), (decision, change)) in charges.iter().zip(current).zip(decided) {
            state.apply(change);
            if state != State::Fresh {
                states.insert(id(charge), state);
            }
            decisions.push(decision);
        }
        Ok(decisions)
    }

    /// What a bucket says now, without touching it.
    pub fn inspect(&self, rule: &Rule, key: &Key) -> Decision {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.get(&(rule.name.to_string(), key.clone())).cloned().unwrap_or_default();
        decide(&rule.quota, 0, &state, self.clock.now()).0
    }

    /// Forgets a bucket; false when there was nothing to forget.
    pub fn reset(&self, rule: &Rule, key: &Key) -> bool {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.remove(&(rule.name.to_string(), key.clone())).is_some()
    }

    /// Gives a slot back.
    pub fn release(&self, rule: &Rule, key: &Key, hold: Hold) -> bool {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.get_mut(&(rule.name.to_string(), key.clone())).is_some_and(|state| state.release(hold))
    }
}
