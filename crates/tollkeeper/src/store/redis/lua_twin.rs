//! The Lua scripts must match the core: the same cases through `decide_all`, `release`, `refund` and `settle` in Rust
//! and through Lua on real servers must give the same answers and store the same bytes.
//!
//! If it fails, the message names the seed; `TOLLKEEPER_SEED=... cargo test -p tollkeeper --features redis --lib
//! lua_twin` replays it.

mod chance;
mod stored;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use chance::Chance;
use redis::{Connection, Pipeline, Value};
use stored::{Stored, ttl_ms};
use tollkeeper_core::{
    Algorithm, Change, Charge, Decision, Hold, Key, Lease, Quota, Receipt, Refunds, Rule, Span, State, Timestamp,
    decide, decide_all, is_denied,
};
use tollkeeper_testkit::store::{Kind, Server};
use world::World;

use super::batch::{Ask, Batch, Booked, RequestAnswer, counts_refunds};
use super::node::Refusal;
use super::script::{At, CHARGE, CHARGE_BUCKETS, CHARGE_ONE, CHARGE_RUN, Call, REFUND, RELEASE, RENEW, SETTLE, Script};
use super::stored::{refunded_key, state_key};
use super::{RedisOptions, RedisStore};
use crate::clock::Clock;

/// By the server's clock.
fn server_time() -> At {
    At::Server { about: Clock::system().now() }
}

/// One call with everything it should do.
struct Case {
    script: &'static Script,
    call: Call,
    seeds: Vec<(String, Stored)>,
    expected: Vec<Expected>,
    description: String,
}

/// What a key holds after the call.
struct Expected {
    key: String,
    stored: Stored,
    /// The time to live, if the call wrote it.
    ttl_ms: Option<i64>,
}

/// Runs all cases, many per round trip, and passes each reply to `check`.
///
/// Each case is a transaction: the server's clock for expiry stands still in it, so that states which expire a
/// millisecond later can be read back.
fn run(connection: &mut Connection, cases: &[Case], mut check: impl FnMut(&Case, usize, Value)) {
    for script in [&CHARGE, &CHARGE_BUCKETS, &CHARGE_ONE, &CHARGE_RUN, &RELEASE, &RENEW, &REFUND, &SETTLE] {
        redis::cmd("SCRIPT").arg("LOAD").arg(script.source()).exec(connection).unwrap();
    }
    for (chunk, cases) in cases.chunks(100).enumerate() {
        let mut pipe = Pipeline::new();
        for case in cases {
            let mut transaction = Pipeline::new();
            transaction.cmd("MULTI");
            for (key, seed) in &case.seeds {
                seed.seed(key, &mut transaction);
            }
            transaction.add_command(case.script.evalsha(&case.call));
            for Expected { key, stored, .. } in &case.expected {
                stored::read_back(stored, key, &mut transaction);
            }
            for command in transaction.cmd_iter() {
                pipe.add_command(command.clone()).ignore();
            }
            pipe.cmd("EXEC");
        }
        let replies: Vec<Vec<Value>> = pipe.query(connection).unwrap_or_else(|error| panic!("{error}"));
        for (index, (case, mut replies)) in cases.iter().zip(replies).enumerate() {
            let read_back = replies.split_off(replies.len() - 3 * case.expected.len());
            check(case, chunk * 100 + index, replies.pop().unwrap());
            for (expected, replies) in case.expected.iter().zip(read_back.chunks(3)) {
                expected.check(stored::found(replies), &case.description);
            }
        }
    }
}

impl Expected {
    fn check(&self, (stored, ttl_ms): (Stored, i64), description: &str) {
        assert_eq!(stored, self.stored, "{}, {description}", self.key);
        match self.ttl_ms {
            Some(most) => assert!((0.max(most - 500)..=most).contains(&ttl_ms), "{most}: {ttl_ms}, {description}"),
            None => assert!(ttl_ms < 0, "{} was written: {description}", self.key),
        }
    }
}

/// Prints the seed of a failing run.
fn with_seed(run: impl FnOnce(u64)) {
    struct SeedLine(u64);
    impl Drop for SeedLine {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("replay with TOLLKEEPER_SEED={}", self.0);
            }
        }
    }
    let seed = SeedLine(Chance::seed());
    run(seed.0);
}

/// A case of the charge script, and the core's answer.
struct ChargeCase {
    batch: Batch,
    now: Timestamp,
    granted: Vec<u32>,
    answers: Vec<Vec<RequestAnswer>>,
}

/// Runs `count` equal requests through the core, one by one.
fn decide_each(
    ask: Ask,
    charges: &[Charge],
    positions: &[usize],
    count: u32,
    world: &mut World,
    written: &mut [bool],
) -> (Vec<RequestAnswer>, u32) {
    let (mut answers, mut granted) = (Vec::new(), 0);
    let before = world.states.clone();
    for _ in 0..count {
        let decided = decide_all(charges, positions.iter().map(|position| &world.states[*position]), world.now());
        let denied = is_denied(charges.iter().zip(decided.iter().map(|(decision, _)| decision)));
        granted += u32::from(!denied);
        let mut answer = RequestAnswer::default();
        for ((charge, position), (decision, change)) in charges.iter().zip(positions).zip(decided) {
            if matches!(ask, Ask::Reserve | Ask::Estimate) && !denied {
                let refunds = world.refunds[*position].as_ref().map(|refunds| refunds.total(world.now()));
                let refunded = refunds.filter(|_| ask == Ask::Estimate && counts_refunds(charge));
                let receipt = Receipt::of(charge.cost, &decision, &change, world.now());
                answer.booked.push(receipt.map(|receipt| Booked { receipt, refunded }));
            }
            if ask != Ask::Peek {
                written[*position] |= change != Change::None;
            }
            let (untouched, _) = decide(charge.quota(), 0, &world.states[*position], world.now());
            world.states[*position].apply(change);
            // What was not charged remains.
            let is_charged = ask != Ask::Peek || denied || !decision.is_allowed();
            answer.decisions.push(if is_charged {
                decision
            } else {
                Decision { outcome: decision.outcome, ..untouched }
            });
        }
        answers.push(answer);
    }
    if ask == Ask::Peek {
        world.states = before;
        // What a peek leaves: the repair of a clock jump.
        for (charge, position) in charges.iter().zip(positions) {
            let (decision, change) = decide(charge.quota(), charge.cost, &world.states[*position], world.now());
            if !decision.is_allowed() {
                written[*position] |= change != Change::None;
                world.states[*position].apply(change);
            }
        }
    }
    (answers, granted)
}

/// Takes up to `count` tokens one at a time.
fn lease_each(
    charge: &Charge,
    position: usize,
    count: u32,
    world: &mut World,
    written: &mut [bool],
) -> (RequestAnswer, u32) {
    let (quota, now) = (charge.quota(), world.now());
    let state = &mut world.states[position];
    let mut tokens = 0;
    let mut probe = state.clone();
    while tokens < count {
        let (decision, change) = decide(quota, 1, &probe, now);
        if !decision.is_allowed() {
            break;
        }
        probe.apply(change);
        tokens += 1;
    }
    let (decision, change) = decide(quota, tokens, state, now);
    let lease = Lease::of(quota, tokens, &change).filter(|_| tokens > 0);
    // If it was denied altogether, it may still repair a clock jump.
    let change = if tokens == 0 { decide(quota, 1, state, now).1 } else { change };
    written[position] |= change != Change::None;
    state.apply(change);
    (RequestAnswer { decisions: vec![decision], booked: Vec::new(), lease }, tokens)
}

fn charge_cases(chance: &mut Chance, worlds: u64) -> (Vec<Case>, Vec<ChargeCase>) {
    let (mut cases, mut charge_cases) = (Vec::new(), Vec::new());
    for name in 0..worlds {
        let mut world = World::new(chance, name);
        for _ in 0..1 + chance.below(12) {
            world.move_clock(chance);
            world.edit_rules(chance);
            // Requests that differ only in their key usually ask for the same.
            let mut asked_by_all = None;
            let entries: Vec<_> = if chance.one_in(2) {
                asked_by_all =
                    chance.pick(&[None, Some(Ask::Charge), Some(Ask::Charge), Some(Ask::Reserve), Some(Ask::Estimate)]);
                let count = chance.pick(&[1, 1, 1, 5]);
                world.single_requests(chance).into_iter().map(|request| (request, count)).collect()
            } else {
                (0..1 + chance.below(5))
                    .map(|_| (world.request(chance), chance.pick(&[1, 1, 1, 1, 2, 3, 10, 40])))
                    .collect()
            };
            let mut used: Vec<usize> = entries.iter().flat_map(|((_, positions), _)| positions.clone()).collect();
            used.sort_unstable();
            used.dedup();
            let key_of = |world: &World, position: usize| {
                let (rule, identity) = (position / world.identities, position % world.identities);
                state_key("tollkeeper", world.rules[rule].rule.name(), &world.key(identity))
            };
            let seeds: Vec<(usize, Stored)> =
                used.iter().map(|position| (*position, world.seed(chance, *position))).collect();
            // Estimates read them, and no request changes them.
            let refunds: Vec<(String, Stored)> = used
                .iter()
                .map(|position| {
                    let (rule, identity) = (position / world.identities, position % world.identities);
                    let key = refunded_key("tollkeeper", world.rules[rule].rule.name(), &world.key(identity));
                    (key, world.seed_refunds(chance, *position))
                })
                .collect();
            let rules: Vec<String> =
                world.rules.iter().map(|rule| format!("{} {:?}", rule.quota, rule.rule.mode())).collect();
            let mut description = format!("at {} {rules:?} {:?}", world.now, world.states);
            let (mut batch, mut granted, mut answers) = (Batch::default(), Vec::new(), Vec::new());
            let mut written = vec![false; world.states.len()];
            for ((charges, positions), count) in entries {
                let any = chance.pick(&[Ask::Charge, Ask::Charge, Ask::Reserve, Ask::Estimate, Ask::Peek, Ask::Lease]);
                let ask = asked_by_all.unwrap_or(any);
                let leasable = matches!(&*charges, [charge @ Charge { rule, cost: 1, .. }]
                    if rule.is_enforced() && Lease::is_possible(charge.quota().algorithm()));
                let ask = if ask == Ask::Lease && !leasable { Ask::Charge } else { ask };
                let (answer, passed) = if ask == Ask::Lease {
                    let (answer, tokens) = lease_each(&charges[0], positions[0], count, &mut world, &mut written);
                    (vec![answer], tokens)
                } else {
                    decide_each(ask, &charges, &positions, count, &mut world, &mut written)
                };
                granted.push(passed);
                let costs = charges.iter().map(|charge| (charge.rule.name(), &*charge.key.value, charge.cost));
                description.push_str(&format!(", {ask:?} {count} times {:?}", costs.collect::<Vec<_>>()));
                answers.push(answer);
                batch.push(ask, charges, count).unwrap();
            }
            let expected = seeds.iter().map(|(position, seed)| {
                let (state, quota) = (&world.states[*position], &world.rules[*position / world.identities].quota);
                let is_written = written[*position];
                Expected {
                    key: key_of(&world, *position),
                    stored: if is_written { Stored::of(state) } else { seed.clone() },
                    ttl_ms: is_written.then(|| ttl_ms(state, quota, world.now())),
                }
            });
            let untouched = refunds.iter().cloned().map(|(key, stored)| Expected { key, stored, ttl_ms: None });
            let expected = expected.chain(untouched).collect();
            let states = seeds.into_iter().map(|(position, seed)| (key_of(&world, position), seed));
            cases.push(Case {
                script: batch.script(),
                call: batch.call(At::Given(world.now())),
                seeds: states.chain(refunds).collect(),
                expected,
                description,
            });
            charge_cases.push(ChargeCase { batch, now: world.now(), granted, answers });
        }
    }
    (cases, charge_cases)
}

#[test]
fn charges_are_decided_as_in_rust() {
    with_seed(|seed| {
        let (cases, charges) = charge_cases(&mut Chance::new(seed), 1_500);
        for script in [&CHARGE, &CHARGE_BUCKETS, &CHARGE_ONE, &CHARGE_RUN] {
            let used = cases.iter().filter(|case| std::ptr::eq(case.script, &raw const **script)).count();
            assert!(used > 100, "a script is hardly tested: {used} of {} cases", cases.len());
        }
        for kind in Kind::ALL {
            let server = Server::start(kind);
            run(&mut server.connect(), &cases, |case, index, value| {
                let (charge, description) = (&charges[index], &case.description);
                let reply =
                    charge.batch.reply(value).unwrap_or_else(|error| panic!("{kind:?}: {error}, {description}"));
                assert_eq!(reply.now, charge.now);
                assert_eq!(reply.granted, charge.granted, "{kind:?}, {description}");
                assert_eq!(charge.batch.answer(&reply).unwrap(), charge.answers.concat(), "{kind:?}, {description}");
            });
            println!("{kind:?}: {} calls agree", cases.len());
        }
    });
}

/// A log with requests of all ages, and the receipts of its charges.
fn history(chance: &mut Chance, quota: &Quota, now: &mut u64) -> (State, Vec<Receipt>) {
    let (mut state, mut receipts) = (State::Fresh, Vec::new());
    for _ in 0..chance.below(30) {
        *now += chance.pick(&[0, 0, 1, quota.period().as_micros() / 40, quota.full_refill().as_micros() / 7]);
        let at = Timestamp::from_micros(*now);
        let cost = world::cost(chance, quota).min(quota.limit() / 3 + 1);
        let (decision, change) = decide(quota, cost, &state, at);
        receipts.extend(Receipt::of(cost, &decision, &change, at));
        if chance.one_in(4)
            && let Some(mut lease) = Lease::of(quota, cost, &change).filter(|_| decision.is_allowed())
        {
            lease.spend(quota, chance.below(u64::from(cost)) as u32, at);
            receipts.extend(lease.receipt(quota, at));
        }
        state.apply(change);
    }
    (state, receipts)
}

#[test]
fn slots_are_released_as_in_rust() {
    with_seed(|seed| {
        let mut chance = Chance::new(seed);
        let (mut cases, mut released) = (Vec::new(), Vec::new());
        for name in 0..600 {
            let count = 1 + chance.below(200) as u32;
            let quota = Quota::concurrent(count, Span::from_micros(1 + chance.below(10_000_000))).build().unwrap();
            let mut now = 1_700_000_000_000_000;
            let (mut state, receipts) = history(&mut chance, &quota, &mut now);
            let key = format!("slots-{name}");
            let seed = Stored::of(&state);
            let unknown = Receipt {
                cost: 1,
                at: Timestamp::from_micros(now - chance.below(5)),
                nth: 7,
                is_lease: false,
                after: None,
            };
            let receipt = receipts.get(chance.below(1 + receipts.len() as u64) as usize).copied().unwrap_or(unknown);
            let hold = Hold { at: receipt.at, nth: receipt.nth };
            let at = Timestamp::from_micros(now);
            let was_there = state.release(hold) && hold.at + quota.period() > at;
            released.push(was_there);
            cases.push(Case {
                script: &RELEASE,
                call: Call::release(key.clone(), &quota, hold, At::Given(at)),
                seeds: vec![(key.clone(), seed)],
                expected: vec![Expected { key, stored: Stored::of(&state), ttl_ms: None }],
                description: format!("{quota}: {hold:?}"),
            });
        }
        assert!(released.iter().any(|released| *released) && released.iter().any(|released| !released));
        for kind in Kind::ALL {
            let server = Server::start(kind);
            run(&mut server.connect(), &cases, |case, index, value| {
                assert_eq!(value, Value::Int(i64::from(released[index])), "{kind:?}, {}", case.description);
            });
        }
    });
}

#[test]
fn slots_are_renewed_as_in_rust() {
    with_seed(|seed| {
        let mut chance = Chance::new(seed);
        let (mut cases, mut renewals) = (Vec::new(), Vec::new());
        for name in 0..600 {
            let count = 1 + chance.below(200) as u32;
            let quota = Quota::concurrent(count, Span::from_micros(1 + chance.below(10_000_000))).build().unwrap();
            let mut now = 1_700_000_000_000_000;
            let (mut state, receipts) = history(&mut chance, &quota, &mut now);
            let key = format!("slots-{name}");
            let seed = Stored::of(&state);
            let unknown = Receipt {
                cost: 1,
                at: Timestamp::from_micros(now - chance.below(5)),
                nth: 7,
                is_lease: false,
                after: None,
            };
            let receipt = receipts.get(chance.below(1 + receipts.len() as u64) as usize).copied().unwrap_or(unknown);
            let hold = Hold { at: receipt.at, nth: receipt.nth };
            let at = Timestamp::from_micros(now);
            let renewed = state.renew(&quota, hold, at);
            renewals.push(renewed);
            cases.push(Case {
                script: &RENEW,
                call: Call::renew(key.clone(), &quota, hold, At::Given(at)),
                seeds: vec![(key.clone(), seed)],
                expected: vec![Expected {
                    key,
                    stored: Stored::of(&state),
                    ttl_ms: renewed.filter(|renewed| *renewed != hold).map(|_| ttl_ms(&state, &quota, at)),
                }],
                description: format!("{quota}: {hold:?}"),
            });
        }
        assert!(renewals.iter().any(Option::is_some) && renewals.iter().any(Option::is_none));
        for kind in Kind::ALL {
            let server = Server::start(kind);
            run(&mut server.connect(), &cases, |case, index, value| {
                let expected = renewals[index].map_or(Value::Nil, |hold| {
                    Value::Array(vec![Value::Int(hold.at.as_micros() as i64), Value::Int(hold.nth.into())])
                });
                assert_eq!(value, expected, "{kind:?}, {}", case.description);
            });
        }
    });
}

#[test]
fn refunds_are_as_in_rust() {
    with_seed(|seed| {
        let mut chance = Chance::new(seed);
        let (mut cases, mut refunded) = (Vec::new(), Vec::new());
        for name in 0..3_000 {
            let quota = world::quota(&mut chance);
            let mut now = 1_700_000_000_000_000;
            let (mut state, receipts) = history(&mut chance, &quota, &mut now);
            let Some(receipt) = receipts.get(chance.below(receipts.len() as u64) as usize).copied() else { continue };
            now += chance.pick(&[0, 0, 1, 1_000, quota.period().as_micros() / 3]);
            let other = world::quota(&mut chance);
            let changed_at = Timestamp::from_micros(now - chance.below(1_000_000));
            let other = if chance.one_in(2) { other } else { other.in_place_of(&quota, changed_at) };
            let charged_by = if chance.one_in(5) { &other } else { &quota };
            let key = format!("refund-{name}");
            let seed = if chance.one_in(20) { Stored::Hash } else { Stored::of(&state) };
            if seed == Stored::Hash {
                state = State::Fresh;
            }
            let (before, at) = (state.clone(), Timestamp::from_micros(now));
            let receipt = if chance.one_in(4) && !receipt.is_lease { Receipt { nth: 0, ..receipt } } else { receipt };
            let count = chance.pick(&[0, 0, 1, 10, 70]);
            let mut counted = world::refunds(&mut chance, receipt, count, u64::from(quota.limit()));
            let counter = (format!("{key}-r"), Stored::Text(counted.to_string().into_bytes()));
            let done = state.refund(charged_by, receipt, at);
            match receipt.nth {
                _ if !done || receipt.is_lease => {}
                0 => counted.add_of_any(receipt.cost.into()),
                // What was refunded before it was charged is not known here.
                _ => counted.add(Receipt { nth: 0, ..receipt }, 0, receipt.cost.into(), at),
            }
            // A log keeps its time to live: seeded without one, it has none.
            let is_written = done && !matches!(state, State::Log(_) | State::Fresh);
            refunded.push(done);
            cases.push(Case {
                script: &REFUND,
                call: Call::refund([(key.clone(), format!("{key}-r"), charged_by, receipt)], At::Given(at)),
                seeds: vec![(key.clone(), seed.clone()), counter.clone()],
                expected: vec![
                    Expected {
                        key,
                        stored: if done { Stored::of(&state) } else { seed },
                        ttl_ms: is_written.then(|| ttl_ms(&state, charged_by, at)),
                    },
                    Expected { key: counter.0, stored: Stored::Text(counted.to_string().into_bytes()), ttl_ms: None },
                ],
                description: format!("{charged_by}: {receipt:?} at {now} from {before:?}"),
            });
        }
        for kind in Kind::ALL {
            let server = Server::start(kind);
            run(&mut server.connect(), &cases, |case, index, value| {
                let expected = Value::Array(vec![Value::Int(i64::from(refunded[index]))]);
                assert_eq!(value, expected, "{kind:?}, {}", case.description);
            });
        }
    });
}

#[test]
fn estimates_are_settled_as_in_rust() {
    with_seed(|seed| {
        let mut chance = Chance::new(seed);
        let (mut cases, mut settled) = (Vec::new(), Vec::new());
        for name in 0..4_000 {
            let quota = world::quota(&mut chance);
            let mut now = 1_700_000_000_000_000;
            let (mut state, receipts) = history(&mut chance, &quota, &mut now);
            let receipts: Vec<Receipt> = receipts.into_iter().filter(|receipt| !receipt.is_lease).collect();
            let Some(receipt) = receipts.get(chance.below(receipts.len() as u64) as usize).copied() else { continue };
            now += chance.pick(&[0, 0, 1, 1_000, quota.period().as_micros() / 3, quota.full_refill().as_micros()]);
            now -= if chance.one_in(20) { chance.pick(&[1, quota.full_refill().as_micros().min(1 << 49)]) } else { 0 };
            let other = world::quota(&mut chance);
            let by = if chance.one_in(10) { &other } else { &quota };
            let (key, counter) = (format!("settle-{name}"), format!("settle-{name}-r"));
            let seed = if chance.one_in(20) { Stored::Hash } else { Stored::of(&state) };
            if seed == Stored::Hash {
                state = State::Fresh;
            }
            let receipt = if chance.one_in(4) { Receipt { nth: 0, ..receipt } } else { receipt };
            let count = chance.pick(&[0, 0, 1, 2, 10, 70]);
            let mut refunds = world::refunds(&mut chance, receipt, count, u64::from(quota.limit()));
            let total = refunds.total(Timestamp::MAX);
            let counted_before = chance.pick(&[0, 0, total / 2, total]);
            let cost = chance.pick(&[0, 0, receipt.cost / 2, receipt.cost - 1, receipt.cost, receipt.cost + 1]);
            let cost = if chance.one_in(4) { world::cost(&mut chance, &quota) } else { cost };
            let (before, at) = (state.clone(), Timestamp::from_micros(now));
            let (seeded, is_tracked) = (refunds.clone(), !chance.one_in(10));
            let since = match is_tracked {
                true => refunds.since(receipt, counted_before),
                false if receipt.after.is_some() => State::RESET,
                false => 0,
            };
            let back = state.settle(by, receipt, cost, since, at);
            if back.counted > 0 {
                refunds.add(receipt, counted_before, back.counted.into(), at);
            }
            let text = |refunds: &Refunds| match is_tracked {
                true => Stored::Text(refunds.to_string().into_bytes()),
                false => Stored::Nothing,
            };
            let is_same = Stored::of(&state) == Stored::of(&before);
            let is_shorter = matches!((&before, &state), (State::Log(_), State::Log(_))) && back.counted > 0;
            // An overdraft is written, even if the debt was already at its maximum.
            let is_overdrawn = cost > receipt.cost && !by.algorithm().keeps_log();
            let is_written = is_overdrawn || (!is_same && !is_shorter && Stored::of(&state) != Stored::Nothing);
            settled.push(back.refunded);
            cases.push(Case {
                script: &SETTLE,
                call: Call::settle([(key.clone(), counter.clone(), by, receipt, counted_before, cost)], At::Given(at)),
                seeds: vec![(key.clone(), seed.clone()), (counter.clone(), text(&seeded))],
                expected: vec![
                    Expected {
                        key,
                        stored: if is_same { seed } else { Stored::of(&state) },
                        ttl_ms: is_written.then(|| ttl_ms(&state, by, at)),
                    },
                    Expected { key: counter, stored: text(&refunds), ttl_ms: None },
                ],
                description: format!(
                    "{by}: {receipt:?} cost {cost}, {seeded} of {counted_before} at {now} from {before:?}"
                ),
            });
        }
        assert!(settled.iter().any(|back| *back > 0) && settled.contains(&0));
        for kind in Kind::ALL {
            let server = Server::start(kind);
            run(&mut server.connect(), &cases, |case, index, value| {
                let expected = Value::Array(vec![Value::Int(i64::from(settled[index]))]);
                assert_eq!(value, expected, "{kind:?}, {}", case.description);
            });
        }
    });
}

#[test]
fn without_a_given_time_the_server_s_clock_decides() {
    let server = Server::start(Kind::Redis7);
    let mut chance = Chance::new(1);
    let world = World::new(&mut chance, 0);
    let mut batch = Batch::default();
    batch.push(Ask::Charge, world.request(&mut chance).0, 1).unwrap();
    let reply: Value = batch.script().eval(&batch.call(server_time())).query(&mut server.connect()).unwrap();
    let reply = batch.reply(reply).unwrap();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut server.connect()).unwrap();
    assert!(reply.now.as_micros().abs_diff(seconds * 1_000_000) < 5_000_000);
    assert!(batch.answer(&reply).is_ok());
}

#[test]
fn a_server_that_forgot_the_script_is_taught_again() {
    let server = Server::start(Kind::Redis7);
    let mut connection = server.connect();
    let mut chance = Chance::new(1);
    let world = World::new(&mut chance, 0);
    let mut batch = Batch::default();
    batch.push(Ask::Charge, world.request(&mut chance).0, 1).unwrap();
    let call = batch.call(server_time());
    let script = batch.script();
    let forgotten = script.evalsha(&call).query::<Value>(&mut connection).unwrap_err();
    assert_eq!(forgotten.code(), Some("NOSCRIPT"));
    script.eval(&call).query::<Value>(&mut connection).unwrap();
    script.evalsha(&call).query::<Value>(&mut connection).unwrap();
}

/// A charge under a limit per month.
fn monthly() -> Charge {
    let rule = Rule::new("monthly").key("{user}").limit("3/month").algorithm(Algorithm::FixedWindow);
    let rule = rule.timezone("Europe/Berlin").build().unwrap();
    Charge::new(Arc::new(rule), Key { variant: 0, value: "u".into() }, 1)
}

#[test]
fn a_server_in_another_window_does_nothing_and_says_what_time_it_is() {
    let server = Server::start(Kind::Redis7);
    let mut connection = server.connect();
    let mut batch = Batch::default();
    batch.push(Ask::Charge, vec![monthly()], 1).unwrap();
    let call = batch.call(At::Server { about: Timestamp::from_micros(1_000_000_000_000_000) });
    let refusal = Refusal::from(batch.script().eval(&call).query::<Value>(&mut connection).unwrap_err());
    let Refusal::OtherTime(about) = refusal else { panic!("{refusal:?}") };
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap(), 0);
    let reply: Value = batch.script().eval(&batch.call(At::Server { about })).query(&mut connection).unwrap();
    assert!(batch.answer(&batch.reply(reply).unwrap()).unwrap()[0].decisions[0].is_allowed());
}

/// The clock of the process was a year behind that of Redis: a limit per month was for the wrong month, or for none.
#[tokio::test]
async fn the_server_s_clock_decides_which_month_it_is() {
    let server = Server::start(Kind::Redis7);
    let store = RedisStore::connect(&server.url(), RedisOptions::default()).await.unwrap();
    for year in [-1, 1] {
        store.0.clock_ahead.store(year * 365 * 86_400_000_000, Relaxed);
        let decided = store.charge(&[monthly()]).await.unwrap();
        assert!(decided[0].0.is_allowed(), "{year}");
        let ahead = store.0.clock_ahead.load(Relaxed);
        assert!(ahead.unsigned_abs() < 60_000_000, "the clock was learned: {ahead}");
        let month = monthly().quota().window_at(store.now());
        let ends = store.now() + decided[0].0.reset_after;
        assert!(ends.as_micros().abs_diff(month.end.as_micros()) < 60_000_000);
    }
    let bucket = monthly();
    store.0.clock_ahead.store(-365 * 86_400_000_000, Relaxed);
    assert!(store.refund(bucket.bucket(), 1).await.unwrap(), "refunds too");
    assert_eq!(store.inspect(bucket.bucket()).await.unwrap().remaining, 2);
}
