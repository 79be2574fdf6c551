//! Slows down guessing of tokens and passwords, per address: the first few wrong ones are answered at once, the next ones with
//! a delay, and only few of those at a time.
//!
//! A client with the right one is locked out only while others guess from the same address and use up all waiting
//! places.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollkeeper::sparing::Sparing;
use tollkeeper::{Keyed, Quota, keyed};

use crate::network;

/// The delay of the answer to a wrong token, after the first few.
const DELAY: Duration = Duration::from_millis(100);
/// How many delayed answers one address, and all addresses together, may wait for at the same time.
const PLACES: usize = 4;
const ALL_PLACES: usize = 1_000;
/// The maximum number of addresses remembered. Each is forgotten after as many quiet seconds as it had wrong tokens.
const ADDRESSES: usize = 10_000;

/// Recent wrong tokens.
#[derive(Debug)]
pub struct Guesses {
    /// How many wrong tokens of each address are answered at once.
    budget: Keyed,
    waiting: Mutex<HashMap<IpAddr, usize>>,
    wrong: AtomicU64,
    logged: Sparing,
}

impl Default for Guesses {
    fn default() -> Guesses {
        let budget = keyed(Quota::per_second(1).burst(20)).expect("a valid quota");
        Guesses {
            budget: budget.with_max_keys(ADDRESSES),
            waiting: Mutex::default(),
            wrong: AtomicU64::new(0),
            logged: Sparing::every(Duration::from_secs(60)),
        }
    }
}

impl Guesses {
    /// Call it before checking a token; `None` when too many are waiting.
    pub fn begin(self: &Arc<Self>, address: IpAddr) -> Option<Attempt> {
        let address = network::of_client(address);
        let mut attempt = Attempt { guesses: self.clone(), address, has_place: false };
        if self.budget.peek(&address).is_allowed() {
            return Some(attempt);
        }
        let mut waiting = self.waiting();
        if waiting.values().sum::<usize>() >= ALL_PLACES || waiting.get(&address).is_some_and(|&own| own >= PLACES) {
            return None;
        }
        *waiting.entry(address).or_default() += 1;
        attempt.has_place = true;
        Some(attempt)
    }

    /// How many wrong tokens there have been.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, address: IpAddr) {
        if let Some(left_out) = self.logged.turn() {
            tracing::warn!("{address} sends wrong tokens or passwords; its answers are delayed{left_out}");
        }
    }
}

/// A token being checked.
#[derive(Debug)]
pub struct Attempt {
    guesses: Arc<Guesses>,
    address: IpAddr,
    has_place: bool,
}

impl Attempt {
    /// It was wrong: counts it, and delays the answer if there were many.
    pub async fn fail(self) {
        self.count_wrong().delay().await;
    }

    /// It was wrong, and is answered later.
    pub fn count_wrong(self) -> Wrong {
        self.guesses.wrong.fetch_add(1, Relaxed);
        let is_early = self.guesses.budget.check(&self.address).is_allowed();
        let is_late = !is_early || self.has_place;
        if is_late {
            self.guesses.log(self.address);
        }
        Wrong { _attempt: self, is_late }
    }
}

/// A wrong token, until it is answered.
#[derive(Debug)]
pub struct Wrong {
    _attempt: Attempt,
    is_late: bool,
}

impl Wrong {
    /// Delays the answer if there were many.
    pub async fn delay(self) {
        if self.is_late {
            tokio::time::sleep(DELAY).await;
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.has_place {
            return;
        }
        let mut waiting = self.guesses.waiting();
        if let Some(own) = waiting.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn after_the_first_few_an_address_waits_and_others_do_not() {
        let guesses = Arc::new(Guesses::default());
        let (eve, ann): (IpAddr, IpAddr) = ([203, 0, 113, 6].into(), [198, 51, 100, 7].into());
        for _ in 0..20 {
            let attempt = guesses.begin(eve).expect("early");
            assert!(!attempt.has_place);
            attempt.fail().await;
        }
        let held: Vec<Attempt> = (0..PLACES).map(|_| guesses.begin(eve).expect("a place")).collect();
        assert!(held.iter().all(|attempt| attempt.has_place));
        assert!(guesses.begin(eve).is_none(), "no fifth at a time");
        assert!(guesses.begin(ann).is_some_and(|attempt| !attempt.has_place));
        let before = tokio::time::Instant::now();
        for attempt in held {
            attempt.fail().await;
        }
        assert!(before.elapsed() >= 4 * DELAY);
        assert!(guesses.begin(eve).is_some(), "places are released");
        assert!(guesses.waiting().is_empty());
        assert_eq!(guesses.wrong(), 24);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let guesses = Arc::new(Guesses::default());
        for number in 0..3 * ADDRESSES as u32 {
            guesses.begin(Ipv4Addr::from_bits(number).into()).expect("early").fail().await;
        }
        assert!(guesses.budget.len() <= ADDRESSES && guesses.waiting().len() <= ALL_PLACES);
    }
}
