//! What clients were told, and the laws that it has to keep:
//!
//! - **No interval exceeds its bound**, for rules that fail closed, leased or not; judged by the auditor of `./run chaos`,
//!   which knows only when each request was sent and answered.
//! - **No window of a calendar exceeds its limit**, leased or not, nor the one in which the day ends.
//! - **Every token is accounted for.** What a server counts in the end is what clients were told that they were charged;
//!   where an answer was lost, it may be that much more. So nothing is refunded twice, no lease is spent twice, and no
//!   reservation is lost.
//! - **At most as many slots are held as there are.**
//! - **Nobody waits for ever.**
//! - **Overload is never an answer.** As long as the servers are well, no rule answers by its failure policy: what could
//!   not be decided in time was shed, which is neither allowed nor denied.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use siphasher::sip::SipHasher13;
use tollkeeper_auditor::{Bound, Event, Limit, Observation, audit};
use tollkeeper_core::Source;

use super::clients::Outcome;
use super::plan::{LEASED, PACE, Plan, SLOTS, STOCK, TODAY};
use crate::limiter::Limiter;
use crate::store::redis::link::simulated::network::Network;

/// Shared by all clients of a run.
#[derive(Clone)]
pub(super) struct Ledger {
    network: Arc<Network>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_shown: bool,
    trace: SipHasher13,
    requests: u64,
    observed: BTreeMap<(&'static str, String), Vec<Observation>>,
    accounts: BTreeMap<&'static str, Account>,
    occupied: Vec<(Duration, Duration)>,
    /// Restarts without data.
    forgotten: Vec<Duration>,
    /// When a server's clock jumped, and by how many milliseconds.
    steps: Vec<(Duration, i64)>,
    /// When keys moved from one server to another.
    moves: Vec<Duration>,
    by_policy: u64,
    leased: u64,
    broken: Vec<String>,
}

/// What was charged to the buckets of a rule.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    least: u64,
    most: u64,
}

impl Ledger {
    pub(super) fn new(network: Arc<Network>, is_shown: bool) -> Ledger {
        Ledger { network, state: Arc::new(Mutex::new(State { is_shown, ..State::default() })) }
    }

    /// Records something that happened.
    pub(super) fn note(&self, what: &str) {
        let now = self.elapsed();
        let mut state = self.state();
        state.trace.write(what.as_bytes());
        state.trace.write_u128(now.as_micros());
        if state.is_shown {
            println!("{now:>12?}  {what}");
        }
    }

    /// A law was broken.
    pub(super) fn broke(&self, law: String) {
        self.note(&law);
        self.state().broken.push(law);
    }

    pub(super) fn answered(&self, client: usize, rule: &'static str, key: &str, cost: u32, outcome: Outcome) {
        self.note(&format!("client {client}: {rule} {key} cost {cost}: {outcome:?}"));
        let mut state = self.state();
        state.requests += 1;
        let (Outcome::Allowed(source) | Outcome::Denied(source)) = outcome else { return };
        state.by_policy += u64::from(matches!(source, Source::Policy | Source::Local));
    }

    pub(super) fn observed(&self, rule: &'static str, key: &str, sent: Duration, admitted: bool) {
        let answered = self.elapsed();
        let seen = Observation { sent, answered, admitted };
        self.state().observed.entry((rule, key.to_string())).or_default().push(seen);
    }

    /// It was charged, between `least` and `most`.
    pub(super) fn charged(&self, rule: &'static str, least: u32, most: u32) {
        let mut state = self.state();
        let account = state.accounts.entry(rule).or_default();
        account.least += u64::from(least);
        account.most += u64::from(most);
    }

    /// It may have been charged.
    pub(super) fn unknown(&self, rule: &'static str, cost: u32) {
        self.charged(rule, 0, cost);
    }

    pub(super) fn settled(&self, rule: &'static str, estimate: u32, actual: u32, refunded: u32) {
        self.note(&format!("{rule} settled {estimate} at {actual}: {refunded} back"));
        if refunded > estimate.saturating_sub(actual) {
            self.broke(format!("{rule}: {refunded} of {estimate} refunded, although {actual} were used"));
        }
        let left = estimate.saturating_sub(refunded).max(actual);
        // A token that was refilled in part is reported as refunded.
        let most = if rule == "bucket" { left + 1 } else { left };
        self.charged(rule, left, most);
    }

    /// A slot was certainly held from the answer on, until it was released or its hold ended.
    pub(super) fn occupied(&self, sent: Duration, answered: Duration, released: Duration) {
        self.state().occupied.push((answered, released.min(sent + SLOTS.1)));
    }

    pub(super) fn forgotten(&self) {
        let now = self.elapsed();
        self.state().forgotten.push(now);
    }

    pub(super) fn stepped(&self, by_ms: i64) {
        let now = self.elapsed();
        self.state().steps.push((now, by_ms));
    }

    pub(super) fn moved(&self) {
        let now = self.elapsed();
        self.state().moves.push(now);
    }

    pub(super) fn leased(&self, tokens: u64) {
        self.state().leased += tokens;
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.network.elapsed()
    }

    pub(super) fn trace(&self) -> u64 {
        self.state().trace.finish()
    }

    pub(super) fn requests(&self) -> u64 {
        self.state().requests
    }

    pub(super) fn broken(&self) -> Vec<String> {
        self.state().broken.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a run that is over, by what the servers say now.
    pub(super) async fn judge(&self, plan: &Plan, limiter: &Arc<Limiter>) {
        self.judge_intervals(plan);
        self.judge_slots();
        self.judge_days();
        let count = self.state().by_policy;
        if plan.is_calm() && count > 0 {
            self.broke(format!("{count} answers by failure policy, although the servers were well"));
        }
        let is_whole = self.state().forgotten.is_empty();
        if is_whole {
            let accounts: Vec<_> = self.state().accounts.iter().map(|(rule, account)| (*rule, *account)).collect();
            for (rule, account) in accounts {
                self.judge_account(plan, limiter, rule, account).await;
            }
        }
    }

    fn judge_intervals(&self, plan: &Plan) {
        let events: Vec<Event> = {
            let state = self.state();
            // What a restarting server has forgotten is known when it is back.
            let longest = Duration::from_secs(2);
            // Virtual time may not pass between an event and what comes of it.
            let just_before = |at: &Duration| at.saturating_sub(Duration::from_micros(1));
            let event = |at: &Duration| Event { from: just_before(at), to: *at + longest, recovered: *at + longest };
            // A step back gives nothing.
            let forward = state.steps.iter().filter(|(_, by_ms)| *by_ms > 0).map(|(at, _)| at);
            // A key that moves to another clock may meet a later time there.
            let moves = state.moves.iter().filter(|_| !state.steps.is_empty());
            state.forgotten.iter().chain(forward).chain(moves).map(event).collect()
        };
        let observed = self.state().observed.clone();
        for ((rule, key), seen) in observed {
            let (per_second, burst) = match rule {
                "steady" | "local" => PACE,
                "leased" => LEASED,
                "open" if plan.is_calm() => PACE,
                _ => continue,
            };
            // What the store admits, and what the instances that do not reach it admit by their shares.
            let times = if rule == "local" && !plan.is_calm() { 2 } else { 1 };
            let bound = Bound::Limited { times, bursts: 1 };
            let worst = audit(&seen, Limit { per_second, burst }, bound, &events);
            if let Some(worst) = worst.filter(|worst| worst.is_violated()) {
                self.broke(format!("{rule} {key}: {worst:?}"));
            }
        }
    }

    /// What was answered before midnight, and what was sent after it. A clock that steps moves the midnight.
    fn judge_days(&self) {
        let (limit, midnight) = TODAY;
        let observed = {
            let state = self.state();
            if !state.forgotten.is_empty() || !state.steps.is_empty() {
                return;
            }
            state.observed.clone()
        };
        for ((_, key), seen) in observed.iter().filter(|((rule, _), _)| *rule == "day") {
            let admitted = || seen.iter().filter(|one| one.admitted);
            let before = admitted().filter(|one| one.answered < midnight).count();
            let after = admitted().filter(|one| one.sent >= midnight).count();
            for (day, count) in [("before", before), ("after", after)] {
                if count > limit as usize {
                    self.broke(format!("{key}: {count} of {limit} a day were admitted {day} midnight"));
                }
            }
        }
    }

    fn judge_slots(&self) {
        let (occupied, forgotten) = {
            let state = self.state();
            // A step forward ends holds.
            let forward = state.steps.iter().filter(|(_, by_ms)| *by_ms > 0).count();
            (state.occupied.clone(), state.forgotten.len() + forward)
        };
        for (moment, _) in &occupied {
            let held = occupied.iter().filter(|(from, to)| from <= moment && moment < to).count();
            if held > SLOTS.0 * (1 + forgotten) {
                self.broke(format!("{held} slots are held at {moment:?}"));
                return;
            }
        }
    }

    async fn judge_account(&self, plan: &Plan, limiter: &Arc<Limiter>, rule: &'static str, account: Account) {
        let keys: &[&str] = match rule {
            "hoard" | "month" => &["k0", "k1"],
            "bucket" | "window" | "log" | "left" => &["k"],
            _ => return,
        };
        let mut used = 0;
        for key in keys {
            match limiter.inspect(rule, key).await {
                Some(Ok(found)) => used += u64::from(STOCK - found[0].decision.remaining),
                other => return self.broke(format!("{rule}: {other:?}")),
            }
        }
        let Account { least, most } = account;
        // What came back since then, rounded up for each bucket; or is still to come, where a clock was set back.
        let (forward, back) = {
            let steps = &self.state().steps;
            let sum = |sign: i64| steps.iter().map(|(_, by_ms)| (by_ms * sign).max(0) as u64).sum::<u64>() / 1_000;
            (sum(1), sum(-1))
        };
        let tokens = |seconds: u64| (u64::from(STOCK) * seconds / 86_400 + 2) * keys.len() as u64;
        let (refilled, owed) = match rule {
            "window" | "log" | "month" => (0, 0),
            _ => (tokens(self.elapsed().as_secs() + forward), if back > 0 { tokens(back) } else { 0 }),
        };
        let leased = self.state().leased;
        self.note(&format!("{rule}: {used} used, {least} to {most} charged, {leased} leased"));
        if used + refilled < least {
            self.broke(format!("{rule}: {used} used, although at least {least} were charged (refilled {refilled})"));
        }
        let most = match rule {
            // Leases of which the answer was lost are as large as the rule allows.
            "hoard" | "month" if !plan.is_still() => return,
            "hoard" | "month" => most + leased,
            // A refund whose outcome is unknown is not repeated: the part that passed stays charged.
            "left" if !plan.is_still() => return,
            _ => most,
        };
        if used > most + owed {
            self.broke(format!("{rule}: {used} used, although at most {most} were charged"));
        }
    }
}
