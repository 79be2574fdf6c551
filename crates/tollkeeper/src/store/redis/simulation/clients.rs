//! Clients: each asks again and again, for one thing after the other or for many at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollkeeper_core::{Descriptor, Source, Verdict};

use super::ledger::Ledger;
use super::plan::Plan;
use crate::limiter::{CheckError, Limiter};
use crate::store::redis::link::simulated::chance::Chance;
use crate::store::redis::link::simulated::shuffled;

/// Nobody waits for longer, whatever happens.
const FOR_EVER: Duration = Duration::from_secs(30);

pub(super) struct Client {
    name: usize,
    limiter: Arc<Limiter>,
    ledger: Ledger,
    chance: Chance,
    until: Instant,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed(Source),
    Denied(Source),
    /// Neither.
    Shed,
}

impl Outcome {
    fn of(asked: &Result<Verdict, CheckError>) -> Outcome {
        match asked {
            Ok(verdict) if verdict.is_allowed() => Outcome::Allowed(verdict.source()),
            Ok(verdict) => Outcome::Denied(verdict.source()),
            Err(_) => Outcome::Shed,
        }
    }
}

impl Client {
    pub(super) fn new(name: usize, limiter: Arc<Limiter>, ledger: Ledger, chance: Chance, plan: &Plan) -> Client {
        Client { name, limiter, ledger, chance, until: Instant::now() + plan.length }
    }

    pub(super) async fn live(mut self) {
        while Instant::now() < self.until {
            match self.chance.below(17) {
                0 | 1 => self.check("steady").await,
                2 => self.check("open").await,
                3 | 4 => self.burst("leased").await,
                5 => self.burst("hoard").await,
                6 | 7 => self.estimate().await,
                8 => self.pair().await,
                9 => self.occupy().await,
                10 => self.burst("open").await,
                11 => self.burst("local").await,
                12 => self.check("local").await,
                13 => self.burst("month").await,
                14 => self.burst("day").await,
                15 => self.check("day").await,
                _ => self.burst("steady").await,
            }
            sleep(Duration::from_millis(self.chance.pick(&[0, 0, 1, 5, 30, 150]))).await;
        }
    }

    async fn check(&mut self, rule: &'static str) {
        let key = format!("k{}", self.chance.below(2));
        check(self.name, self.limiter.clone(), self.ledger.clone(), rule, key, 1).await;
    }

    /// Many at once, in tasks of their own.
    async fn burst(&mut self, rule: &'static str) {
        let key = format!("k{}", if matches!(rule, "leased" | "day") { 0 } else { self.chance.below(2) });
        let count = self.chance.pick(&[2, 5, 20, 70]);
        let mut tasks = Vec::new();
        for _ in 0..count {
            let cost = if matches!(rule, "hoard" | "month") { 1 + self.chance.below(3) as u32 } else { 1 };
            let (limiter, ledger) = (self.limiter.clone(), self.ledger.clone());
            let asked = check(self.name, limiter, ledger, rule, key.clone(), cost);
            let task = tokio::spawn(shuffled(asked));
            // Some callers give up, as when their connection is closed. What became of them is not known.
            if self.chance.one_in(20) {
                let pause = Duration::from_millis(self.chance.below(20));
                let ledger = self.ledger.clone();
                tasks.push(tokio::spawn(async move {
                    sleep(pause).await;
                    if !task.is_finished() {
                        task.abort();
                        ledger.unknown(rule, cost);
                    }
                }));
            } else {
                tasks.push(task);
            }
        }
        for task in tasks {
            let _ = task.await;
        }
    }

    /// An estimate that is settled later, or never.
    async fn estimate(&mut self) {
        let rule = self.chance.pick(&["bucket", "window", "log"]);
        let (estimate, actual) = (1 + self.chance.below(40) as u32, self.chance.below(60) as u32);
        let request = Descriptor::new([(rule, "k")]).with_cost(estimate);
        let ledger = self.ledger.clone();
        let Ok(reserved) = timeout(FOR_EVER, self.limiter.reserve(&request)).await else {
            return ledger.broke(format!("client {} waits for ever for a reservation", self.name));
        };
        let (verdict, reservation) = match reserved {
            Ok((verdict, reservation)) => (verdict, reservation),
            Err(_) => {
                ledger.answered(self.name, rule, "k", estimate, Outcome::Shed);
                return ledger.unknown(rule, estimate);
            }
        };
        let outcome = Outcome::of(&Ok(verdict));
        ledger.answered(self.name, rule, "k", estimate, outcome);
        match outcome {
            Outcome::Allowed(Source::Store) => {}
            // The call was made, or may have been made, and its answer is lost.
            _ => {
                ledger.unknown(rule, estimate);
                return;
            }
        }
        sleep(Duration::from_millis(self.chance.pick(&[0, 1, 20, 200]))).await;
        if self.chance.one_in(8) {
            drop(reservation);
            ledger.charged(rule, estimate, estimate);
            return;
        }
        match timeout(FOR_EVER, reservation.settle(actual)).await {
            Err(_) => ledger.broke(format!("client {} waits for ever for a settlement", self.name)),
            Ok(Ok(settlement)) => {
                let refunded = settlement.rows.first().map_or(0, |row| row.refunded);
                ledger.settled(rule, estimate, actual, refunded);
            }
            Ok(Err(error)) => {
                ledger.note(&format!("client {} does not know whether {rule} was settled: {error}", self.name));
                ledger.charged(rule, estimate.min(actual), estimate.max(actual));
            }
        }
    }

    /// Two rules, in a cluster on different servers: both are charged, or none. Several at once, so that one of the two may
    /// have been used up in between.
    async fn pair(&mut self) {
        let (right, count) = (format!("r{}", self.chance.below(2)), self.chance.pick(&[1, 4, 12]));
        let asked = |_| {
            let (limiter, ledger) = (self.limiter.clone(), self.ledger.clone());
            tokio::spawn(shuffled(check_pair(self.name, limiter, ledger, right.clone())))
        };
        let tasks: Vec<_> = (0..count).map(asked).collect();
        for task in tasks {
            let _ = task.await;
        }
    }

    /// A slot, for a while.
    async fn occupy(&mut self) {
        let (sent, request) = (self.ledger.elapsed(), Descriptor::new([("slots", "k")]));
        let Ok(asked) = timeout(FOR_EVER, self.limiter.acquire(&request)).await else {
            return self.ledger.broke(format!("client {} waits for ever for a slot", self.name));
        };
        let (asked, permit) = asked.map_or_else(|error| (Err(error), None), |(verdict, it)| (Ok(verdict), Some(it)));
        let outcome = Outcome::of(&asked);
        self.ledger.answered(self.name, "slots", "k", 1, outcome);
        let answered = self.ledger.elapsed();
        sleep(Duration::from_millis(self.chance.pick(&[1, 20, 300, 2_500]))).await;
        if matches!(outcome, Outcome::Allowed(_)) {
            self.ledger.occupied(sent, answered, self.ledger.elapsed());
        }
        drop(permit);
    }
}

async fn check(client: usize, limiter: Arc<Limiter>, ledger: Ledger, rule: &'static str, key: String, cost: u32) {
    let sent = ledger.elapsed();
    let request = Descriptor::new([(rule, key.clone())]).with_cost(cost);
    let Ok(asked) = timeout(FOR_EVER, limiter.check(&request)).await else {
        return ledger.broke(format!("client {client} waits for ever for {rule}"));
    };
    let outcome = Outcome::of(&asked);
    ledger.answered(client, rule, &key, cost, outcome);
    ledger.observed(rule, &key, sent, matches!(outcome, Outcome::Allowed(_)));
    match outcome {
        Outcome::Allowed(_) => ledger.charged(rule, cost, cost),
        // The call may have been made.
        Outcome::Denied(Source::Policy) | Outcome::Shed => ledger.unknown(rule, cost),
        Outcome::Denied(_) => {}
    }
}

async fn check_pair(client: usize, limiter: Arc<Limiter>, ledger: Ledger, right: String) {
    let request = Descriptor::new([("left", "k".to_string()), ("right", right)]);
    let Ok(asked) = timeout(FOR_EVER, limiter.check(&request)).await else {
        return ledger.broke(format!("client {client} waits for ever for a pair"));
    };
    // When one server failed right after the other, the answers of the rules on the first were lost.
    if let Some(rows) = asked.as_ref().ok().map(Verdict::rows).filter(|rows| rows.len() != 2) {
        ledger.broke(format!("{} rules answered, and not both", rows.len()));
    }
    let outcome = Outcome::of(&asked);
    ledger.answered(client, "left", "k", 1, outcome);
    match outcome {
        Outcome::Allowed(_) => ledger.charged("left", 1, 1),
        Outcome::Denied(Source::Policy) | Outcome::Shed => ledger.unknown("left", 1),
        Outcome::Denied(_) => {}
    }
}
