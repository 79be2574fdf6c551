//! Generated rules, clients and clocks.

use std::sync::Arc;

use tollkeeper_core::{
    Algorithm, Calendar, CalendarUnit, Charge, Enforcement, Key, Quota, Receipt, Refunds, Rule, RuleSpec, Span, State,
    Timestamp, decide,
};

use super::chance::Chance;
use super::stored::Stored;

/// A rule, and the quota for its charges.
pub(super) struct Limited {
    pub(super) rule: Arc<Rule>,
    pub(super) quota: Quota,
}

impl Limited {
    fn charge(&self, key: Key, cost: u32) -> Charge {
        Charge::new(self.rule.clone(), key, cost).with_quota(self.quota)
    }
}

/// Some rules and identities, and the state of each pair.
pub(super) struct World {
    pub(super) rules: Vec<Limited>,
    pub(super) identities: usize,
    /// By rule, then identity.
    pub(super) states: Vec<State>,
    /// What was refunded to each, if that is tracked.
    pub(super) refunds: Vec<Option<Refunds>>,
    pub(super) now: u64,
    name: u64,
}

const START: u64 = 1_700_000_000_000_000;

impl World {
    /// `name` separates the keys of different worlds.
    pub(super) fn new(chance: &mut Chance, name: u64) -> World {
        let rules: Vec<_> = (0..1 + chance.below(4)).map(|index| rule(chance, index)).collect();
        let identities = 1 + chance.below(6) as usize;
        let states = vec![State::Fresh; rules.len() * identities];
        let now = chance.pick(&[START, START, START, START, 0, 5_000_000, Timestamp::MAX.as_micros() - (1 << 40)]);
        let refunds = vec![None; states.len()];
        let mut world = World { rules, identities, states, refunds, now, name };
        world.fill_logs(chance);
        world
    }

    /// Fills logs: many small entries over a period, so that many expire at once and large costs wait for many.
    fn fill_logs(&mut self, chance: &mut Chance) {
        let (start, identities) = (self.now, self.identities);
        for (position, state) in self.states.iter_mut().enumerate() {
            let quota = self.rules[position / identities].quota;
            if !quota.algorithm().keeps_log() || chance.one_in(3) {
                continue;
            }
            let most = chance.pick(&[1, 1, 3]);
            for step in 0..chance.below(120) {
                let at = Timestamp::from_micros(start + step * (quota.period().as_micros() / 100));
                state.apply(decide(&quota, 1 + chance.below(most) as u32, state, at).1);
                self.now = self.now.max(at.as_micros());
            }
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    /// Where the state of a charge is.
    pub(super) fn position(&self, rule: usize, identity: usize) -> usize {
        rule * self.identities + identity
    }

    pub(super) fn key(&self, identity: usize) -> Key {
        Key { variant: identity as u16 % 2, value: format!("{}-{identity}", self.name) }
    }

    /// The charges of one request under some of the rules, and the positions of their states.
    pub(super) fn request(&self, chance: &mut Chance) -> (Vec<Charge>, Vec<usize>) {
        let identity = chance.below(self.identities as u64) as usize;
        let (mut charges, mut positions) = (Vec::new(), Vec::new());
        for (index, rule) in self.rules.iter().enumerate() {
            if charges.is_empty() || !chance.one_in(3) {
                let cost = cost(chance, &rule.quota);
                charges.push(rule.charge(self.key(identity), cost));
                positions.push(self.position(index, identity));
            }
        }
        (charges, positions)
    }

    /// One charge of one rule, for some identities one after the other: the most common call of a busy limiter.
    pub(super) fn single_requests(&self, chance: &mut Chance) -> Vec<(Vec<Charge>, Vec<usize>)> {
        let (index, of) = (chance.below(self.rules.len() as u64) as usize, self.identities as u64);
        let rule = &self.rules[index];
        let cost = cost(chance, &rule.quota);
        let identities = 0..1 + chance.below(of) as usize;
        let request = |identity: usize| {
            let charge = rule.charge(self.key(identity), cost);
            (vec![charge], vec![self.position(index, identity)])
        };
        identities.map(request).collect()
    }

    /// Edits a rule now and then: other numbers, or another algorithm. The states stay.
    pub(super) fn edit_rules(&mut self, chance: &mut Chance) {
        let index = chance.below(self.rules.len() as u64) as usize;
        let old = self.rules[index].quota;
        let edited = match chance.below(12) {
            0 => quota(chance),
            1 | 2 => {
                let count = chance.pick(&[1, old.count() / 3, old.count() / 2, old.count().saturating_mul(2)]).max(1);
                let edited = Quota::per(count, old.period()).algorithm(old.algorithm()).build();
                edited.unwrap_or(old)
            }
            _ => return,
        };
        // Usually the new quota knows the old one; after a restart it does not.
        let edited = if chance.one_in(4) { edited } else { edited.in_place_of(&old, self.now()) };
        self.rules[index].quota = edited;
    }

    /// Moves the clock, usually forwards.
    pub(super) fn move_clock(&mut self, chance: &mut Chance) {
        let quota = self.rules[chance.below(self.rules.len() as u64) as usize].quota;
        let (period, refill) = (quota.period().as_micros(), quota.full_refill().as_micros());
        let wait = self.states.iter().map(|state| decide(&quota, 1, state, self.now()).0.retry_after());
        let wait = wait.flatten().map(Span::as_micros).max().unwrap_or(0);
        let share = |of: u64, chance: &mut Chance| (u128::from(of) * u128::from(chance.below(1_100)) / 1_000) as u64;
        let limit = Timestamp::MAX.as_micros();
        self.now = match chance.below(16) {
            0..=3 => self.now,
            4 => self.now + chance.below(3),
            5..=7 => self.now + share(period, chance),
            8 => self.now + share(refill, chance),
            9 => self.now + wait,
            10 => self.now + wait.saturating_sub(1),
            11 => self.now.saturating_sub(chance.below(3)),
            12 => self.now.saturating_sub(share(period, chance)),
            13 => self.now.saturating_sub(refill.saturating_add(share(refill, chance))),
            14 => self.now.saturating_sub(refill.saturating_mul(2).saturating_add(share(refill, chance))),
            _ => self.now + refill.saturating_mul(2),
        }
        .min(limit);
    }

    /// What is stored of a key's refunds.
    pub(super) fn seed_refunds(&mut self, chance: &mut Chance, position: usize) -> Stored {
        let charge = Receipt { cost: 1, at: self.now(), nth: 9, is_lease: false, after: None };
        let count = chance.pick(&[0, 0, 1, 3, 70]);
        let counted = refunds(chance, charge, count, 100);
        let stored = Stored::Text(counted.to_string().into_bytes());
        let is_tracked = !chance.one_in(3);
        self.refunds[position] = is_tracked.then_some(counted);
        if is_tracked { stored } else { Stored::Nothing }
    }

    /// The stored state of a key, which now and then is not what Tollkeeper wrote.
    pub(super) fn seed(&mut self, chance: &mut Chance, position: usize) -> Stored {
        let state = &mut self.states[position];
        if !chance.one_in(20) {
            return Stored::of(state);
        }
        if let State::Bucket(bucket) = state
            && chance.one_in(2)
        {
            // Written before there were tags.
            bucket.tag = 0;
            return match Stored::of(state) {
                Stored::Text(text) if text[0] == b'-' => Stored::Text(text[1..text.len() - 3].to_vec()),
                with_tag_0 => with_tag_0,
            };
        }
        *state = State::Fresh;
        match chance.below(6) {
            0 => Stored::Text(
                chance.pick(&["", "OK", "-1", "-12x4", "1e15", "0x1F", "12 3", "99999999999999999999"]).into(),
            ),
            1 => Stored::Text(chance.pick(&["b", "b2345678901", "wshort", "c", "l", "l00001111111222"]).into()),
            2 => Stored::Text([&b"bw"[..], &[0xff; 10]].concat()),
            3 => Stored::Hash,
            4 => Stored::List(vec![b"not a header".into(), b"x".into()]),
            // Of another algorithm, as after a change of the rule.
            _ => {
                let other = quota(chance);
                let now = Timestamp::from_micros(self.now);
                state.apply(decide(&other, 1, &State::Fresh, now).1);
                Stored::of(state)
            }
        }
    }
}

/// Refunds of up to so many charges, at moments and places around those of this one.
pub(super) fn refunds(chance: &mut Chance, around: Receipt, count: u64, unit: u64) -> Refunds {
    let mut refunds = Refunds::default();
    for _ in 0..count {
        let at = around.at.as_micros().saturating_sub(40).saturating_add(chance.below(80));
        let at = Timestamp::from_micros(chance.pick(&[at, at, around.at.as_micros()]));
        let nth = around.nth.saturating_sub(3).saturating_add(chance.below(7) as u32);
        let nth = chance.pick(&[0, 1, nth, nth]);
        let before = chance.pick(&[0, refunds.total(Timestamp::MAX)]);
        let back = chance.pick(&[1, 1, 2, 1 + unit / 100, unit / 10, unit / 2]).max(1);
        refunds.add(Receipt { at, nth, ..around }, before, back, Timestamp::MAX);
    }
    if chance.one_in(20) {
        refunds.reset();
    }
    refunds
}

fn rule(chance: &mut Chance, index: u64) -> Limited {
    let spec = RuleSpec {
        name: format!("rule-{index}"),
        key: "{user}".into(),
        limit: "1/s".into(),
        mode: chance.pick(&[
            Enforcement::Enforce,
            Enforcement::Enforce,
            Enforcement::Enforce,
            Enforcement::Shadow,
            Enforcement::Quota,
        ]),
        ..RuleSpec::default()
    };
    Limited { rule: Arc::new(spec.build().unwrap()), quota: quota(chance) }
}

pub(super) fn quota(chance: &mut Chance) -> Quota {
    loop {
        let algorithm = chance.pick(&Algorithm::ALL);
        let any = 1 + chance.below(1_000_000) as u32;
        let count = chance.pick(&[1, 2, 3, 5, 10, 100, 1_000, 7_919, 1_234_567, Quota::MAX_COUNT, any]);
        let any = 1 + chance.below(100_000_000_000);
        let period = chance.pick(&[
            1,
            7,
            1_000,
            1_000_000,
            1_000_000,
            60_000_000,
            3_600_000_000,
            86_400_000_000,
            90_000_001,
            any,
        ]);
        let any = 1 + chance.below(100_000) as u32;
        let burst = chance.pick(&[1, 2, 5, 100, count, 2_000_000_000, Quota::MAX_COUNT, any]);
        if algorithm == Algorithm::FixedWindow && chance.one_in(2) {
            return Quota::per_calendar(count, calendar(chance)).build().unwrap();
        }
        if let Ok(quota) = Quota::per(count, Span::from_micros(period)).burst(burst).algorithm(algorithm).build() {
            return if chance.one_in(10) { quota.untagged() } else { quota };
        }
    }
}

fn calendar(chance: &mut Chance) -> Calendar {
    let unit = chance.pick(&[CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year]);
    let zone =
        chance.pick(&["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Africa/Cairo", "Pacific/Apia"]);
    let anchor = if unit == CalendarUnit::Day { 1 } else { chance.pick(&[1, 1, 2, 7]) };
    let anchor = if unit == CalendarUnit::Month { chance.pick(&[1, 15, 29, 31]) } else { anchor };
    Calendar::new(unit).timezone(zone).unwrap().anchor_day(anchor).unwrap()
}

pub(super) fn cost(chance: &mut Chance, quota: &Quota) -> u32 {
    let limit = quota.limit();
    match chance.below(12) {
        0 => 0,
        1..=4 => 1,
        5 => 2,
        6 => limit,
        7 => limit + 1,
        8 => limit / 2,
        9 => limit - limit / 3,
        10 => u32::MAX,
        _ => (u64::from(limit) * chance.below(1_000) / 1_000) as u32,
    }
}
