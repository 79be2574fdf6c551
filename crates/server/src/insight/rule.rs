//! One rule's traffic over the last half hour to hour, so that old attacks fade.

use std::cell::Cell;
use std::mem;
use std::sync::Arc;

use tollkeeper::{Algorithm, Quota, Rule, Span, Timestamp};

use tollkeeper_tune::words::grouped;
use tollkeeper_tune::{
    Behaviour, Demand, Denied, Enough, Evidence, Few, Finding, Hot, HotKeys, Journal, Judgement, Ladder, Period, Sample,
};

use super::timeline::Timeline;
use crate::metrics::Outcomes;

/// Counts are off by at most a 64th of the total.
pub(super) const HOT_ROOM: usize = 64;
/// Shares of keys are off by at most 2.2 % (one standard error).
const SAMPLE_ROOM: usize = 512;
/// How long each of the two generations lasts.
const GENERATION: Span = Span::from_secs(1_800);
/// The share of denials that a few keys have to explain while they did so before.
const STILL_EXPLAINED: f64 = 0.7;

/// A rule's traffic.
#[derive(Debug)]
pub(crate) struct RuleInsight {
    pub(crate) timeline: Timeline<Outcomes>,
    quota: Quota,
    ladder: Option<Ladder>,
    now: Generation,
    before: Generation,
    last_denied: Option<Timestamp>,
    /// Kept when the limit changes: other numbers can be tried on it all the same.
    journal: Journal,
    /// The latest judgement, so that a small difference does not change it.
    judgement: Cell<Option<Judgement>>,
}

/// One decision about one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation<'k> {
    pub(super) at: Timestamp,
    /// Of the key, with this process's random seed.
    pub(super) hash: u64,
    pub(super) variant: u16,
    pub(super) key: &'k str,
    pub(super) cost: u32,
    pub(super) outcome: Observed,
    /// Whether the quota being judged decided it.
    pub(super) own_quota: bool,
    /// Whether the rule can deny.
    pub(super) enforced: bool,
}

/// What the rule said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    Allowed,
    Denied {
        /// Until it would pass; `None` if it never can.
        wait: Option<Span>,
    },
    /// Denied by an exception, which says nothing about the limit.
    Blocked,
}

#[derive(Debug)]
struct Generation {
    began: Timestamp,
    traffic: HotKeys<()>,
    denials: HotKeys<Behaviour>,
    /// Of keys that an exception blocks.
    blocks: HotKeys<()>,
    /// Of all keys.
    keys: Sample<KeyNote>,
    /// Of the denied ones.
    denied: Sample<Behaviour>,
}

#[derive(Clone, Debug, Default)]
struct KeyNote {
    denied: bool,
    demand: Demand,
}

impl Generation {
    fn at(began: Timestamp) -> Generation {
        Generation {
            began,
            traffic: HotKeys::filtered(HOT_ROOM),
            denials: HotKeys::new(HOT_ROOM),
            blocks: HotKeys::new(HOT_ROOM),
            keys: Sample::new(SAMPLE_ROOM),
            denied: Sample::new(SAMPLE_ROOM),
        }
    }

    fn add(&mut self, seen: Observation<'_>, ladder: Option<&Ladder>) {
        self.traffic.count(seen.hash, seen.variant, seen.key);
        if seen.outcome == Observed::Blocked {
            self.blocks.count(seen.hash, seen.variant, seen.key);
            return;
        }
        let is_denied = seen.outcome != Observed::Allowed;
        if let Some(note) = self.keys.note(seen.hash) {
            note.denied |= is_denied;
            if let Some(ladder) = ladder.filter(|_| seen.own_quota) {
                let wait = match (seen.outcome, seen.enforced) {
                    (Observed::Denied { wait }, true) => wait,
                    // A shadow rule makes nobody wait.
                    _ => None,
                };
                ladder.add(&mut note.demand, seen.at, seen.cost, wait);
            }
        }
        let Observed::Denied { wait } = seen.outcome else {
            let known = [self.denials.note(seen.hash), self.denied.known(seen.hash)];
            known.into_iter().flatten().for_each(|behaviour| behaviour.came(seen.at));
            return;
        };
        let note = |behaviour: &mut Behaviour| {
            behaviour.came(seen.at);
            behaviour.must_wait(seen.at, wait.unwrap_or(Span::ZERO));
        };
        if let Some(denied) = self.denials.count(seen.hash, seen.variant, seen.key) {
            note(denied);
        }
        self.denied.note(seen.hash).into_iter().for_each(note);
    }
}

impl Generation {
    /// Removes what was denied of a key.
    fn forget(&mut self, hash: u64) {
        self.denials.forget(hash);
        self.denied.forget(hash);
        self.keys.forget(hash);
    }
}

impl RuleInsight {
    pub(super) fn new(rule: &Rule, now: Timestamp) -> RuleInsight {
        RuleInsight {
            timeline: Timeline::new(),
            quota: *rule.quota(),
            // The quotas of `CL.THROTTLE` come from its callers: there is none to judge.
            ladder: Ladder::new(*rule.quota()).filter(|_| !is_throttle(rule.name())),
            now: Generation::at(now),
            before: Generation::at(now),
            last_denied: None,
            journal: Journal::since(now),
            judgement: Cell::new(None),
        }
    }

    /// When a limit changes, its analysis starts over.
    pub(super) fn follow(&mut self, rule: &Arc<Rule>, now: Timestamp) {
        if *rule.quota() != self.quota {
            let timeline = mem::replace(&mut self.timeline, Timeline::new());
            let journal = mem::replace(&mut self.journal, Journal::since(now));
            *self = RuleInsight { timeline, journal, ..RuleInsight::new(rule, now) };
        }
    }

    /// Whether this is the quota being judged.
    pub(super) fn has_quota(&self, quota: &Quota) -> bool {
        self.quota == *quota
    }

    /// Drops what is too old.
    pub(super) fn age(&mut self, now: Timestamp) {
        let age = now.since(self.now.began);
        if age >= GENERATION {
            let began = self.now.began + GENERATION;
            self.before = mem::replace(&mut self.now, Generation::at(began));
        }
        if age >= Span::from_micros(2 * GENERATION.as_micros()) {
            (self.before, self.now) = (Generation::at(now), Generation::at(now));
        }
    }

    pub(super) fn add(&mut self, seen: Observation<'_>) {
        self.age(seen.at);
        match seen.outcome {
            // Its denials are dealt with: what is left shows whether the limit is right for others.
            Observed::Blocked => [&mut self.before, &mut self.now].into_iter().for_each(|one| one.forget(seen.hash)),
            Observed::Denied { .. } => self.last_denied = self.last_denied.max(Some(seen.at)),
            Observed::Allowed => {}
        }
        // A blocked key says nothing about a limit, and slots nothing about a rate.
        if seen.outcome != Observed::Blocked && self.quota.algorithm() != Algorithm::Concurrency {
            self.journal.add(seen.at, seen.hash, seen.cost, seen.outcome != Observed::Allowed);
        }
        self.now.add(seen, self.ladder.as_ref());
    }

    /// The requests of some keys.
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The keys with most requests.
    pub(crate) fn by_traffic(&self, most: usize) -> Vec<Hot<()>> {
        self.before.traffic.top(&self.now.traffic, most, |_, _| ())
    }

    /// The keys with most denials, and how they behave.
    pub(crate) fn by_denials(&self, most: usize) -> Vec<Hot<Behaviour>> {
        self.before.denials.top(&self.now.denials, most, Behaviour::add)
    }

    /// The blocked keys with most requests.
    pub(crate) fn by_blocks(&self, most: usize) -> Vec<Hot<()>> {
        self.before.blocks.top(&self.now.blocks, most, |_, _| ())
    }

    /// What the rule's traffic looks like.
    pub(crate) fn finding(&self, rule: &Rule, now: Timestamp) -> Finding {
        let before = self.judgement.get();
        let (finding, judgement) = Finding::of(self.evidence(rule, before, now), before);
        self.judgement.set(Some(judgement));
        finding
    }

    /// The few keys that cause most denials by retrying without waiting.
    pub(crate) fn hammering(&self, few: &Few) -> Vec<Hot<Behaviour>> {
        let mut keys = self.by_denials(few.keys as usize);
        keys.retain(|hot| hot.note.hammers() == Some(true));
        keys
    }

    fn evidence(&self, rule: &Rule, before: Option<Judgement>, now: Timestamp) -> Evidence {
        let slots = rule.quota().algorithm() == Algorithm::Concurrency;
        let keys = self
            .before
            .keys
            .join(&self.now.keys, |a, b| KeyNote { denied: a.denied || b.denied, demand: a.demand.add(&b.demand) });
        let denied_keys = self.before.denied.join(&self.now.denied, Behaviour::add);
        let denied = self.before.denials.total() + self.now.denials.total();
        let judged: Vec<bool> = denied_keys.notes.iter().filter_map(Behaviour::hammers).collect();
        let hammering = judged.iter().filter(|hammers| **hammers).count();
        let enough = self.ladder.as_ref().filter(|_| denied > 0).and_then(|ladder| {
            let found = ladder.enough(keys.notes.iter().map(|note| &note.demand))?;
            let (limit, burst) = (ladder.written(found.count), found.burst);
            let written = match burst.filter(|burst| *burst != found.count) {
                Some(burst) => format!("{limit} with burst {}", grouped(burst.into())),
                None => limit.clone(),
            };
            let times = f64::from(found.count) / f64::from(rule.quota().count());
            Some(Enough { limit, burst, written, times, share_of_keys_denied: found.share_denied })
        });
        Evidence {
            seconds: now.since(self.before.began).as_micros() / Span::SECOND.as_micros(),
            requests: self.before.traffic.total() + self.now.traffic.total(),
            denied,
            blocked: self.before.blocks.total() + self.now.blocks.total(),
            keys: keys.keys(),
            keys_denied: denied_keys.keys(),
            share_of_keys_denied: keys.share(|note| note.denied),
            exact: keys.is_exact(),
            last_denied_seconds_ago: self
                .last_denied
                .filter(|_| denied > 0)
                .map(|last| now.since(last).as_micros() / Span::SECOND.as_micros()),
            few: self.few(denied, before),
            // How long a slot stays taken is not known, so no wait can be given.
            share_hammering: (!judged.is_empty() && !slots).then(|| hammering as f64 / judged.len() as f64),
            enough,
            one_key: rule.key().needs().next().is_none(),
            mode: rule.mode(),
            slots,
            period: Period::UpToNow,
        }
    }

    /// The fewest keys that certainly explain most denials.
    fn few(&self, denied: u64, before: Option<Judgement>) -> Option<Few> {
        let explained = if before.is_some_and(|before| before.by_few) { STILL_EXPLAINED } else { Few::EXPLAINED };
        let keys = self.by_denials(Few::MOST).into_iter();
        let keys = keys.map(|hot| Denied { certain: hot.certain(), hammers: hot.note.hammers(), is_suspect: None });
        Few::explaining(keys, denied, explained)
    }
}

/// Whether this is the internal rule for `CL.THROTTLE`, which no file names.
pub(super) fn is_throttle(name: &str) -> bool {
    name.starts_with('(')
}
