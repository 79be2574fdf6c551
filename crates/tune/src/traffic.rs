//! The requests that one rule applies to, or that have one kind of key: who sends them, at which rates, and what would be denied.

use std::sync::Arc;

use tollkeeper::{Rule, Span, Timestamp};

use crate::census::Census;
use crate::facts::{Client, Facts};
use crate::histogram::Histogram;
use crate::hot_keys::{Hot, HotKeys};
use crate::journal::Journal;
use crate::lines::LineKey;
use crate::peaks::Peaks;
use crate::suspect::{KeyNote, Suspect, Usual};
use crate::timeline::Timeline;

/// Counts of busy keys are off by at most a 256th of the total.
pub(crate) const HOT_ROOM: usize = 256;
/// Up to twice this many keys are known exactly; beyond, a share of keys has a standard error of at most 0.2 %.
const CENSUS_ROOM: usize = 65_536;
/// Requests that other numbers are tried on.
const JOURNAL_ROOM: usize = 1_000_000;

/// What is known of each sampled key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyStats {
    pub(crate) requests: u32,
    pub(crate) denied: u32,
    pub(crate) peaks: Peaks,
}

/// Requests under one rule.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) rule: Arc<Rule>,
    pub(crate) requests: u64,
    /// Those that programs sent, by what they say of themselves.
    of_programs: u64,
    pub(crate) denied: u64,
    /// Denials of requests that can never pass.
    pub(crate) never: u64,
    pub(crate) hot: HotKeys<KeyNote>,
    pub(crate) hot_denied: HotKeys<KeyNote>,
    /// Of requests that were refused or probe for weaknesses: who sends few of those is still found among the many.
    odd: HotKeys<KeyNote>,
    pub(crate) census: Census<KeyStats>,
    pub(crate) journal: Option<Journal>,
    journal_room: usize,
    pub(crate) timeline: Timeline,
    pub(crate) waits: Histogram,
}

/// A few keys that make much of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Concentration {
    /// How many.
    pub keys: u64,
    /// Their share of requests, 0 to 1.
    pub share: f64,
}

/// What a rule said to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Allowed,
    Denied {
        /// Until it would pass; `None` if it never can.
        wait: Option<Span>,
    },
}

impl Traffic {
    pub(crate) fn new(rule: Arc<Rule>) -> Traffic {
        Traffic {
            rule,
            requests: 0,
            of_programs: 0,
            denied: 0,
            never: 0,
            hot: HotKeys::filtered(HOT_ROOM),
            hot_denied: HotKeys::filtered(HOT_ROOM),
            odd: HotKeys::filtered(HOT_ROOM),
            census: Census::new(CENSUS_ROOM),
            journal: None,
            journal_room: JOURNAL_ROOM,
            timeline: Timeline::default(),
            waits: Histogram::default(),
        }
    }

    /// The same without its requests one by one: no other numbers are tried on them.
    #[must_use]
    pub(crate) fn without_journal(self) -> Traffic {
        Traffic { journal_room: 0, ..self }
    }

    /// Adds a request of a key with this text.
    pub(crate) fn add(&mut self, at_us: u64, key: &LineKey, text: &str, cost: u32, facts: &Facts, said: Said) {
        let is_denied = said != Said::Allowed;
        let hash = key.hash;
        self.requests += 1;
        self.of_programs += u64::from(facts.client == Client::Script);
        if let Some(note) = self.hot.count(hash, key.variant, text) {
            note.add(at_us, facts, is_denied);
        }
        if let Some(note) = facts.is_odd().then(|| self.odd.count(hash, key.variant, text)).flatten() {
            note.add(at_us, facts, is_denied);
        }
        if let Some(stats) = self.census.note(hash) {
            stats.requests = stats.requests.saturating_add(1);
            stats.denied = stats.denied.saturating_add(u32::from(is_denied));
            stats.peaks.add(at_us);
        }
        if self.journal_room > 0 {
            let at = Timestamp::from_micros(at_us);
            let journal = self.journal.get_or_insert_with(|| Journal::of_log(at, self.journal_room));
            journal.add(at, hash, cost, is_denied);
        }
        self.timeline.add(at_us, is_denied);
        let Said::Denied { wait } = said else { return };
        self.denied += 1;
        if let Some(note) = self.hot_denied.count(hash, key.variant, text) {
            note.add(at_us, facts, true);
        }
        match wait {
            Some(wait) => self.waits.add(wait.as_micros()),
            None => self.never += 1,
        }
    }

    /// What most keys do.
    pub(crate) fn usual(&self) -> Usual {
        let mut requests: Vec<u32> = self.census.iter().map(|(_, stats)| stats.requests).collect();
        if requests.is_empty() {
            return Usual::default();
        }
        let middle = requests.len() / 2;
        let median = u64::from(*requests.select_nth_unstable(middle).1);
        Usual { median, are_programs: self.of_programs * 2 > self.requests }
    }

    /// The fewest keys that make 30 % of requests, if ten are enough.
    pub(crate) fn concentration(&self) -> Option<Concentration> {
        let mut share = 0.0;
        for (place, key) in top(&self.hot, 10).iter().enumerate() {
            share += key.certain() as f64 / self.requests.max(1) as f64;
            if share >= 0.3 {
                return Some(Concentration { keys: place as u64 + 1, share });
            }
        }
        None
    }

    /// The note of a key: of all its requests where it is one of the busiest, otherwise of its denials, or of what was odd.
    pub(crate) fn note(&self, hash: u64) -> Option<&KeyNote> {
        self.hot.get(hash).or_else(|| self.hot_denied.get(hash)).or_else(|| self.odd.get(hash))
    }

    /// Keys that look like bots, the busiest first.
    pub(crate) fn suspects(&self) -> Vec<(Hot<KeyNote>, Suspect)> {
        let usual = self.usual();
        let busy = top(&self.hot, usize::MAX);
        // What was odd of a busy key is judged with the rest of it.
        let odd = top(&self.odd, usize::MAX)
            .into_iter()
            .filter(|one| self.hot.get(one.hash).is_none_or(|note| note.noted < one.note.noted));
        let odd: Vec<Hot<KeyNote>> = odd.collect();
        let busy = busy.into_iter().filter(|one| odd.iter().all(|other| other.hash != one.hash));
        let mut suspects: Vec<(Hot<KeyNote>, Suspect)> =
            busy.chain(odd.iter().cloned()).filter_map(|one| one.note.suspect(usual).map(|why| (one, why))).collect();
        suspects.sort_by(|(a, _), (b, _)| b.certain().cmp(&a.certain()).then_with(|| a.key.cmp(&b.key)));
        suspects
    }
}

/// The hottest keys.
pub(crate) fn top<T: Default + Clone>(hot: &HotKeys<T>, most: usize) -> Vec<Hot<T>> {
    hot.top(&HotKeys::new(1), most, |note, _| note.clone())
}
