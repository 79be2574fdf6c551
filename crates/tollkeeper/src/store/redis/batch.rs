//! Batches many requests into one call.
//!
//! The script charges what passes and returns the time, how many passed, and each state as it was before;
//! [`Batch::answer`] then decides again with [`decide_all`] from that state at that time. So replies are small, and
//! answers are those of the core, to the bit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use redis::Value;
use tollkeeper_core::{
    Algorithm, Change, Charge, Decision, Enforcement, Lease, Quota, Receipt, Refill, State, Timestamp, decide,
    decide_all, is_denied,
};

use super::script::{At, CHARGE, CHARGE_BUCKETS, CHARGE_ONE, CHARGE_RUN, Call, Quotas, Script};
use super::stored::{NAMESPACE, read_log, read_refunded, read_string, refunded_key, state_key};

/// Added to the number of a quota whose rule denies only together with others of its kind.
const ALTERNATIVE: i64 = 1 << 20;

/// Whether refunds of a charge are counted. A slot is released, and cannot be released twice.
pub(super) fn counts_refunds(charge: &Charge) -> bool {
    charge.quota().algorithm() != Algorithm::Concurrency
}

/// Requests that are decided in one call.
#[derive(Debug)]
pub(super) struct Batch {
    /// The prefix of all keys.
    namespace: Arc<str>,
    entries: Vec<Requests>,
    /// Keys of states that are strings, of what was refunded, and of logs, each in the order of first use.
    strings: Vec<Arc<str>>,
    refunds: Vec<Arc<str>>,
    logs: Vec<Arc<str>>,
    places: HashMap<Arc<str>, Place>,
    quotas: Quotas,
    /// Whether each entry is the one before it with the next key.
    is_run: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    /// Charge it if it passes.
    Charge,
    /// The same, with receipts: the request is also charged elsewhere, where it may be denied.
    Reserve,
    /// The same, with what was refunded before: the cost is an estimate, which will be corrected.
    Estimate,
    /// Whether it would pass. Nothing is charged.
    Peek,
    /// As many of the requested tokens as there are, to be spent later.
    Lease,
}

/// The answer to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestAnswer {
    /// One per charge.
    pub(super) decisions: Vec<Decision>,
    /// For [`Ask::Reserve`] and [`Ask::Estimate`]: what was booked for each charge, if anything.
    pub(super) booked: Vec<Option<Booked>>,
    /// For [`Ask::Lease`]: the tokens, if there were any.
    pub(super) lease: Option<Lease>,
}

/// A charge that took something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Booked {
    pub(super) receipt: Receipt,
    /// For [`Ask::Estimate`]: how much had been refunded to the key, if that is tracked.
    pub(super) refunded: Option<u64>,
}

#[derive(Debug)]
struct Requests {
    ask: Ask,
    charges: Vec<Charge>,
    places: Vec<Place>,
    count: u32,
}

/// Where a state is among the keys, the quota for it, and where its refunds are if an estimate has to know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    is_log: bool,
    index: usize,
    quota: usize,
    refunds: Option<usize>,
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new(NAMESPACE.into())
    }
}

impl Batch {
    /// An empty batch for keys of a namespace.
    pub(super) fn new(namespace: Arc<str>) -> Batch {
        Batch {
            namespace,
            entries: Vec::new(),
            strings: Vec::new(),
            refunds: Vec::new(),
            logs: Vec::new(),
            places: HashMap::new(),
            quotas: Quotas::default(),
            is_run: true,
        }
    }

    /// Adds `count` equal requests, whose charges all have different keys (a rule applies once). A lease of `count`
    /// tokens is one charge of cost 1.
    ///
    /// In one call a key has only one quota. While requests under old and new rules overlap that may not hold; then
    /// the charges are returned, and this batch has to be sent first.
    pub(super) fn push(&mut self, ask: Ask, charges: Vec<Charge>, count: u32) -> Result<(), Vec<Charge>> {
        debug_assert!(ask != Ask::Lease || matches!(&*charges, [charge] if charge.cost == 1));
        let key = |charge: &Charge| state_key(&self.namespace, charge.rule.name(), &charge.key).into();
        let keys: Vec<Arc<str>> = charges.iter().map(key).collect();
        let is_other = |(key, charge): (&Arc<str>, &Charge)| {
            self.places.get(key).is_some_and(|place| self.quotas.list[place.quota] != *charge.quota())
        };
        if !self.places.is_empty() && keys.iter().zip(&charges).any(is_other) {
            return Err(charges);
        }
        let places = keys.into_iter().zip(&charges).map(|(key, charge)| self.place(key, charge, ask)).collect();
        let entry = Requests { ask, charges, places, count };
        self.is_run = self.is_run && self.entries.last().is_none_or(|last| last.is_followed_by(&entry));
        self.entries.push(entry);
        Ok(())
    }

    fn place(&mut self, key: Arc<str>, charge: &Charge, ask: Ask) -> Place {
        let quota = charge.quota();
        let place = match self.places.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let is_log = quota.algorithm().keeps_log();
                let keys = if is_log { &mut self.logs } else { &mut self.strings };
                let quota = self.quotas.position(quota) - 1;
                let place = Place { is_log, index: keys.len(), quota, refunds: None };
                keys.push(new.key().clone());
                new.insert(place)
            }
        };
        if ask != Ask::Estimate {
            return Place { refunds: None, ..*place };
        }
        if place.refunds.is_none() && counts_refunds(charge) {
            place.refunds = Some(self.refunds.len());
            self.refunds.push(refunded_key(&self.namespace, charge.rule.name(), &charge.key).into());
        }
        *place
    }

    /// Which charges of each entry are to keys of these numbers, as the script counts them: from 1 on.
    pub(super) fn charges_of(&self, keys: &[usize]) -> Vec<Vec<usize>> {
        let is_meant = |place: &Place| keys.contains(&(self.position(*place) + 1));
        let charges = |entry: &Requests| {
            let places = entry.places.iter().enumerate();
            places.filter(|(_, place)| is_meant(place)).map(|(charge, _)| charge).collect()
        };
        self.entries.iter().map(charges).collect()
    }

    /// The same with some of its entries only, by position.
    pub(super) fn only(self, is_kept: impl Fn(usize) -> bool) -> Batch {
        let mut batch = Batch::new(self.namespace);
        for (position, Requests { ask, charges, count, .. }) in self.entries.into_iter().enumerate() {
            if is_kept(position) {
                // They were together before, so no key has two quotas.
                let _ = batch.push(ask, charges, count);
            }
        }
        batch
    }

    /// The call to make.
    pub(super) fn call(&self, when: At) -> Call {
        if let Some((charge, refill)) = self.only_bucket() {
            return Call::one(self.strings[0].clone(), charge.quota(), refill, charge.cost, when);
        }
        if let Some((count, charge, refill)) = self.only_run() {
            return Call::run(self.strings.clone(), count, charge.quota(), refill, charge.cost, when);
        }
        // To the script, what was refunded is a state that no request is charged to: it reads it, and does nothing with it.
        let mut numbers = vec![(self.strings.len() + self.refunds.len()) as i64];
        self.quotas.write(&mut numbers, when);
        for run in self.entries.chunk_by(|one, next| one.is_followed_by(next)) {
            let Requests { ask, charges, places, count } = &run[0];
            let count = i64::from(*count);
            match run[0].as_one() {
                Some((charge, place)) => {
                    let (key, quota) = (self.position(place) as i64 + 1, place.quota as i64 + 1);
                    numbers.extend([0, run.len() as i64, count, key, quota, i64::from(charge.cost)]);
                }
                None => {
                    numbers.extend([if *ask == Ask::Peek { -count } else { count }, charges.len() as i64]);
                    for (charge, place) in charges.iter().zip(places) {
                        let quota = place.quota as i64 + 1;
                        let quota = match charge.enforcement() {
                            Enforcement::Enforce => quota,
                            Enforcement::Quota => quota + ALTERNATIVE,
                            _ => -quota,
                        };
                        numbers.extend([self.position(*place) as i64 + 1, quota, i64::from(charge.cost)]);
                    }
                }
            }
        }
        let keys = self.strings.iter().chain(&self.refunds).chain(&self.logs).cloned().collect();
        Call::of_numbers(keys, &numbers, when)
    }

    fn position(&self, place: Place) -> usize {
        if place.is_log { self.strings.len() + self.refunds.len() + place.index } else { place.index }
    }

    /// The only charge of the batch, if it is to a bucket and may pass, and there is nothing else to read.
    fn only_bucket(&self) -> Option<(&Charge, Refill)> {
        let [only @ Requests { count: 1, .. }] = self.entries.as_slice() else { return None };
        if !self.refunds.is_empty() {
            return None;
        }
        let (charge, _) = only.as_one()?;
        Some((charge, charge.quota().refill()?))
    }

    /// The first charge, and how many there are for each key, if all differ only in their key: several keys of one bucket in
    /// which a token takes whole microseconds.
    fn only_run(&self) -> Option<(u32, &Charge, Refill)> {
        let is_run = self.is_run && self.refunds.is_empty();
        if !is_run || self.strings.len() < 2 || self.strings.len() != self.entries.len() {
            return None;
        }
        let first = self.entries.first()?;
        let (charge, _) = first.as_one()?;
        let refill = charge.quota().refill().filter(|refill| refill.token_part == 0)?;
        Some((first.count, charge, refill))
    }

    /// The script for it: a short one if that is enough.
    pub(super) fn script(&self) -> &'static Script {
        if self.only_bucket().is_some() {
            return &CHARGE_ONE;
        }
        if self.only_run().is_some() {
            return &CHARGE_RUN;
        }
        let bucket = |quota: &Quota| quota.algorithm().has_burst();
        if self.quotas.list.iter().all(bucket) { &CHARGE_BUCKETS } else { &CHARGE }
    }

    /// Parses the script's reply: states, the time, and the entries of which not all passed.
    pub(super) fn reply(&self, value: Value) -> Result<Reply, ReplyError> {
        let shape = |value: &dyn std::fmt::Debug| ReplyError::Shape(format!("{value:?}"));
        let Value::Array(mut states) = value else { return Err(shape(&value)) };
        let keys = self.strings.len() + self.refunds.len() + self.logs.len();
        if states.len() <= keys {
            return Err(shape(&states));
        }
        let rest = states.split_off(keys);
        let number = |value: &Value| match value {
            Value::Int(number) => u64::try_from(*number).map_err(|_| shape(number)),
            other => Err(shape(other)),
        };
        let mut granted: Vec<u32> = self.entries.iter().map(|entry| entry.count).collect();
        let (now, exceptions) = (number(&rest[0])?, &rest[1..]);
        for exception in exceptions.chunks(2) {
            let [entry, passed] = exception else { return Err(shape(&rest)) };
            let entry = (number(entry)? as usize).checked_sub(1).and_then(|entry| granted.get_mut(entry));
            *entry.ok_or_else(|| shape(&rest))? = u32::try_from(number(passed)?).map_err(|_| shape(&rest))?;
        }
        let state = |value: Value| match value {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::Nil => Ok(None),
            other => Err(shape(&other)),
        };
        Ok(Reply {
            now: Timestamp::from_micros(now),
            granted,
            states: states.into_iter().map(state).collect::<Result<_, _>>()?,
        })
    }

    /// The answer to every request of every entry, in the order in which they were added. A lease has one answer.
    pub(super) fn answer(&self, reply: &Reply) -> Result<Vec<RequestAnswer>, ReplyError> {
        let (strings, logs) = (self.strings.len(), self.strings.len() + self.refunds.len());
        let stored = reply.states.iter().enumerate();
        let mut states: Vec<State> = stored
            .map(|(index, state)| match state {
                Some(bytes) if index < strings => read_string(bytes),
                Some(bytes) if index >= logs => read_log(bytes),
                _ => State::Fresh,
            })
            .collect();
        let refunded: Vec<Option<u64>> = reply.states[strings..logs]
            .iter()
            .map(|counted| Some(read_refunded(counted.as_deref()?, reply.now)))
            .collect();
        let mut answers = Vec::with_capacity(self.entries.len());
        for (position, (entry, granted)) in self.entries.iter().zip(&reply.granted).enumerate() {
            let passed = match entry.as_one() {
                Some((charge, place)) if entry.ask == Ask::Charge && entry.count == 1 => {
                    let state = &mut states[self.position(place)];
                    let (decision, change) = decide(charge.quota(), charge.cost, state, reply.now);
                    state.apply(change);
                    let passed = u32::from(decision.is_allowed());
                    answers.push(RequestAnswer { decisions: vec![decision], ..RequestAnswer::default() });
                    passed
                }
                _ => {
                    let positions: Vec<usize> = entry.places.iter().map(|place| self.position(*place)).collect();
                    match entry.ask {
                        Ask::Charge | Ask::Reserve | Ask::Estimate => {
                            entry.replay(&positions, &mut states, &refunded, reply.now, &mut answers)
                        }
                        Ask::Peek => entry.peek(&positions, &mut states, reply.now, &mut answers),
                        Ask::Lease => entry.lease(*granted, &mut states[positions[0]], reply.now, &mut answers),
                    }
                }
            };
            if passed != *granted {
                return Err(ReplyError::Disagrees { entry: position, granted: *granted, decided: passed });
            }
        }
        Ok(answers)
    }
}

impl Requests {
    /// The only charge, if it is of an enforced rule without a log, and may pass.
    fn as_one(&self) -> Option<(&Charge, Place)> {
        let ([charge], [place]) = (self.charges.as_slice(), self.places.as_slice()) else { return None };
        let is_enforced = charge.enforcement() == Enforcement::Enforce;
        let may_pass = is_enforced && (1..=charge.quota().limit()).contains(&charge.cost);
        (self.ask != Ask::Peek && !place.is_log && may_pass).then_some((charge, *place))
    }

    /// Whether the next entry is the same with the next key.
    fn is_followed_by(&self, next: &Requests) -> bool {
        let (Some((charge, place)), Some((next_charge, next_place))) = (self.as_one(), next.as_one()) else {
            return false;
        };
        let is_next = next_place.index == place.index + 1 && next_place.quota == place.quota;
        is_next && self.count == next.count && charge.cost == next_charge.cost
    }

    /// Decides each of the requests, and counts those that passed.
    fn replay(
        &self,
        positions: &[usize],
        states: &mut [State],
        refunded: &[Option<u64>],
        now: Timestamp,
        answers: &mut Vec<RequestAnswer>,
    ) -> u32 {
        let (all, mut passed) = (answers.len() + self.count as usize, 0);
        while answers.len() < all {
            let decided = decide_all(&self.charges, positions.iter().map(|position| &states[*position]), now);
            let (decisions, changes): (Vec<Decision>, Vec<Change>) = decided.into_iter().unzip();
            let is_denied = is_denied(self.charges.iter().zip(&decisions));
            let decisions = if self.ask == Ask::Peek && !is_denied {
                let untouched = self.charges.iter().zip(positions).zip(decisions);
                let untouched = untouched.map(|((charge, position), decision)| {
                    if !decision.is_allowed() {
                        return decision;
                    }
                    let (untouched, _) = decide(charge.quota(), 0, &states[*position], now);
                    Decision { outcome: decision.outcome, ..untouched }
                });
                untouched.collect()
            } else {
                decisions
            };
            let mut booked = Vec::new();
            if matches!(self.ask, Ask::Reserve | Ask::Estimate) && !is_denied {
                let decided = self.charges.iter().zip(&self.places).zip(&decisions).zip(&changes);
                booked.extend(decided.map(|(((charge, place), decision), change)| {
                    let receipt = Receipt::of(charge.cost, decision, change, now)?;
                    Some(Booked { receipt, refunded: place.refunds.and_then(|place| refunded[place]) })
                }));
            }
            for (position, change) in positions.iter().zip(changes) {
                states[*position].apply(change);
            }
            let answer = RequestAnswer { decisions, booked, lease: None };
            if is_denied {
                // Once one is denied, the rest are denied alike.
                answers.resize(all, answer);
            } else {
                passed += 1;
                answers.push(answer);
            }
        }
        passed
    }

    /// As if they were charged one after the other, on a copy; `remaining` is uncharged. Only the repair of a clock
    /// jump is kept.
    fn peek(&self, positions: &[usize], states: &mut [State], now: Timestamp, answers: &mut Vec<RequestAnswer>) -> u32 {
        let mut copy: Vec<State> = positions.iter().map(|position| states[*position].clone()).collect();
        let own: Vec<usize> = (0..positions.len()).collect();
        let passed = self.replay(&own, &mut copy, &[], now, answers);
        for (charge, position) in self.charges.iter().zip(positions) {
            let (decision, change) = decide(charge.quota(), charge.cost, &states[*position], now);
            if !decision.is_allowed() {
                states[*position].apply(change);
            }
        }
        passed
    }

    /// The granted tokens are one charge, and one more would not have passed.
    fn lease(&self, granted: u32, state: &mut State, now: Timestamp, answers: &mut Vec<RequestAnswer>) -> u32 {
        let quota = self.charges[0].quota();
        let (decision, change) = decide(quota, granted, state, now);
        let is_all = granted == self.count || !decide(quota, granted + 1, state, now).0.is_allowed();
        let passed = if decision.is_allowed() && is_all { granted } else { u32::MAX };
        let lease = if granted > 0 { Lease::of(quota, granted, &change) } else { None };
        // If it was denied altogether, it may have repaired a clock jump.
        let change = if granted > 0 { change } else { decide(quota, 1, state, now).1 };
        state.apply(change);
        answers.push(RequestAnswer { decisions: vec![decision], booked: Vec::new(), lease });
        passed
    }
}

/// The reply of the charge script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The time at which everything was decided.
    pub(super) now: Timestamp,
    /// How many requests of each entry passed.
    pub(super) granted: Vec<u32>,
    /// The state of each key before the call, as stored.
    pub(super) states: Vec<Option<Vec<u8>>>,
}

/// An unusable reply. What was charged stays charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReplyError {
    /// Not the format of the script.
    #[error("the store's script returned a reply that this version of Tollkeeper does not expect: {0}")]
    Shape(String),
    /// The script let another number pass than the core. They must agree, so this is a bug in one of them.
    #[error(
        "entry {entry}: the script let {granted} requests pass and the core {decided}; please report this as a bug"
    )]
    Disagrees {
        /// Which entry of the batch.
        entry: usize,
        /// By the script.
        granted: u32,
        /// By the core.
        decided: u32,
    },
}
