//! `CL.THROTTLE key max_burst count period [quantity]`, as redis-cell answers it.
//!
//! The quota comes with the command: a bucket of `max_burst + 1` tokens, refilled with `count` per `period` seconds.
//! It is charged like any rule's, in the same store, under a name that no rule can have. As with every rule, the
//! state belongs to the key, not to the quota: the same key with other numbers is the same bucket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollkeeper::{Charge, Decision, FailurePolicy, Key, Outcome, Quota, Rule, Span, StoreError, Terms};

use super::reply::{Reply, shown};
use super::request::Word;
use crate::metrics::{CommandOutcome, Front};
use crate::service::Service;

/// A parsed command.
#[derive(Debug)]
pub(super) struct Throttle(Charge);

/// The numbers that identify a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Numbers {
    max_burst: i64,
    count: i64,
    period_s: i64,
}

/// What a connection used last.
#[derive(Debug, Default)]
pub(super) struct Recent(Option<Used>);

#[derive(Debug)]
struct Used {
    numbers: Numbers,
    /// The words that said so, unless they are long: to compare them is quicker than to read them again.
    written: Option<[Vec<u8>; 3]>,
    terms: Arc<Terms>,
    /// Charges that were decided. The next ones on these terms take their places, without allocating, and without touching the
    /// counters of the rule and of the terms, which all threads share.
    spare: Vec<Charge>,
}

impl Used {
    /// Of a word: no number that is written without zeros before it is as long.
    const LONGEST: usize = 24;

    fn is_written(&self, words: [&Word<'_>; 3]) -> bool {
        let are_equal = |written: &[Vec<u8>; 3]| written.iter().zip(words).all(|(known, word)| **known == **word);
        self.written.as_ref().is_some_and(are_equal)
    }
}

impl Recent {
    /// How many are kept: as many as are decided together.
    pub(super) const MOST: usize = 16;
    /// The longest key whose memory is kept.
    const LONGEST: usize = 256;

    /// Keeps charges for the next commands.
    pub(super) fn keep(&mut self, charges: impl Iterator<Item = Charge>) {
        let Some(used) = &mut self.0 else { return };
        let is_of = |charge: &Charge| charge.terms().is_some_and(|terms| Arc::ptr_eq(terms, &used.terms));
        let fit = charges.filter(|charge| charge.key.value.capacity() <= Recent::LONGEST && is_of(charge));
        used.spare.extend(fit.take(Recent::MOST - used.spare.len()));
    }
}

/// The terms of each quota in use, so that equal commands have the same terms and can go to the store as one.
#[derive(Debug)]
pub(super) struct Quotas {
    rule: Arc<Rule>,
    terms: Mutex<HashMap<Numbers, Arc<Terms>>>,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas { rule: rule(), terms: Mutex::default() }
    }
}

impl Quotas {
    /// More than anyone uses on purpose. Beyond that the cache is rebuilt, which costs only time.
    const MOST: usize = 4_096;

    /// Parses the words after the name.
    pub(super) fn understand(&self, words: &[Word<'_>], recent: &mut Recent) -> Result<Throttle, Reply> {
        let [key, max_burst, count, period, rest @ ..] = words else { return Err(usage()) };
        let written = [max_burst, count, period];
        let numbers = match recent.0.as_ref().filter(|used| used.is_written(written)) {
            Some(used) => used.numbers,
            None => Numbers { max_burst: integer(max_burst)?, count: integer(count)?, period_s: integer(period)? },
        };
        let quantity = match rest {
            [] => 1,
            [quantity] => integer(quantity)?,
            _ => return Err(usage()),
        };
        if quantity < 0 {
            return Err(Reply::error(format!("ERR quantity {quantity} is negative; tokens cannot be returned")));
        }
        // A quantity too large to count saturates, and can never pass.
        let cost = u32::try_from(quantity).unwrap_or(u32::MAX);
        let used = self.used(numbers, written, recent)?;
        Ok(Throttle(match used.spare.pop() {
            Some(mut charge) => {
                write_bucket(key, &mut charge.key);
                charge.with_cost(cost)
            }
            None => Charge::new(self.rule.clone(), bucket(key), cost).on(used.terms.clone()),
        }))
    }

    /// The buckets of these keys, to be reset.
    pub(super) fn buckets(&self, keys: &[Word<'_>]) -> Vec<Charge> {
        keys.iter().map(|key| Charge::new(self.rule.clone(), bucket(key), 0)).collect()
    }

    /// Most clients use the same numbers again and again.
    fn used<'r>(
        &self,
        numbers: Numbers,
        written: [&Word<'_>; 3],
        Recent(recent): &'r mut Recent,
    ) -> Result<&'r mut Used, Reply> {
        if recent.as_ref().is_none_or(|used| used.numbers != numbers) {
            *recent = None;
        }
        Ok(match recent {
            Some(used) => used,
            None => {
                let are_short = written.iter().all(|word| word.len() <= Used::LONGEST);
                let written = are_short.then(|| written.map(|word| word.to_vec()));
                recent.insert(Used { numbers, written, terms: self.terms(numbers)?, spare: Vec::new() })
            }
        })
    }

    fn terms(&self, numbers: Numbers) -> Result<Arc<Terms>, Reply> {
        let known = |terms: &HashMap<Numbers, Arc<Terms>>| terms.get(&numbers).cloned();
        if let Some(terms) = known(&self.terms.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(terms);
        }
        let made = Arc::new(Terms::new(numbers.quota()?));
        let mut terms = self.terms.lock().unwrap_or_else(PoisonError::into_inner);
        if terms.len() >= Self::MOST {
            terms.clear();
        }
        Ok(terms.entry(numbers).or_insert(made).clone())
    }
}

impl Numbers {
    fn quota(self) -> Result<Quota, Reply> {
        let Numbers { max_burst, count, period_s } = self;
        if count == 0 || period_s == 0 {
            return Err(cell_error("Zero rates are not supported"));
        }
        let number = |name: &str, number: i64, (least, most): (u64, u64)| {
            let fits = u64::try_from(number).ok().filter(|number| (least..=most).contains(number));
            fits.ok_or_else(|| Reply::error(format!("ERR {name} {number} is not between {least} and {most}")))
        };
        let most = u64::from(Quota::MAX_COUNT);
        let limit = number("max_burst", max_burst, (0, most - 1))? + 1;
        let count = number("count", count, (1, most))?;
        let period = number("period", period_s, (1, Span::MAX.as_micros() / Span::SECOND.as_micros()))?;
        // Both are at most `MAX_COUNT`, which is a `u32`.
        let quota = Quota::per(count as u32, Span::from_secs(period)).burst(limit as u32);
        // If the numbers differ from call to call, redis-cell keeps the time, not the tokens.
        quota.build().map(Quota::untagged).map_err(|error| Reply::error(format!("ERR {error}")))
    }
}

/// The rule of all these commands, whose name no file can use; its own limit is never used. While the store is
/// unreachable it denies nothing: the command fails, as it would on an unreachable Redis.
pub(crate) fn rule() -> Arc<Rule> {
    let rule = Rule::new("cl.throttle").key("{key}").limit("1/s").on_store_failure(FailurePolicy::Closed);
    Arc::new(rule.build_internal().expect("a valid rule"))
}

/// A key may be any bytes, but keys of rules are text. Bytes that are not text are written in hexadecimal and marked
/// by the variant, so that no two keys share a bucket.
fn bucket(key: &[u8]) -> Key {
    let mut bucket = Key { variant: 0, value: String::new() };
    write_bucket(key, &mut bucket);
    bucket
}

fn write_bucket(key: &[u8], bucket: &mut Key) {
    bucket.value.clear();
    match std::str::from_utf8(key) {
        Ok(text) => {
            bucket.variant = 0;
            bucket.value.push_str(text);
        }
        Err(_) => {
            bucket.variant = 1;
            bucket.value.extend(key.iter().map(|byte| format!("{byte:02x}")));
        }
    }
}

fn integer(word: &[u8]) -> Result<i64, Reply> {
    // Nearly all are like this, and such a number fits.
    if (1..=18).contains(&word.len())
        && let Some(number) = digits(word)
    {
        return Ok(number);
    }
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| cell_error(&format!("Couldn't parse as integer: {}", shown(word))))
}

/// At most 18 digits, in one pass.
#[inline]
fn digits(word: &[u8]) -> Option<i64> {
    let mut number = 0;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = 10 * number + i64::from(digit);
    }
    Some(number)
}

fn usage() -> Reply {
    cell_error("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]")
}

/// With the prefix of redis-cell's errors.
fn cell_error(problem: &str) -> Reply {
    Reply::error(format!("Cell error: Store error: {problem}"))
}

impl Throttle {
    pub(super) async fn carry_out(self, service: &Service) -> Result<Decision, StoreError> {
        let Throttle(charge) = self;
        let peeked_at = (charge.cost == 0).then(|| *charge.quota());
        let decision = service.charge(Front::Resp, charge).await?;
        Ok(peeked_at.map_or(decision, |quota| peeked(&quota, decision)))
    }
}

impl From<Throttle> for Charge {
    fn from(Throttle(charge): Throttle) -> Charge {
        charge
    }
}

/// What this charge's decision is for redis-cell.
pub(super) fn as_redis_cell(charge: &Charge, decision: Decision) -> Decision {
    if charge.cost == 0 { peeked(charge.quota(), decision) } else { decision }
}

/// For us a peek always passes. redis-cell reports it as limited if the bucket owes more than it holds, as it may
/// after it was charged under larger numbers. (A debt of two refills or more is a clock jump, which the next charge
/// repairs.)
fn peeked(quota: &Quota, decision: Decision) -> Decision {
    let full = quota.full_refill();
    let too_much = decision.reset_after - full;
    if too_much == Span::ZERO || too_much >= full {
        return decision;
    }
    Decision { outcome: Outcome::Denied { retry_after: Some(too_much) }, ..decision }
}

/// The reply to a command, and how it ended.
pub(super) fn reply(decided: Result<Decision, &StoreError>) -> (Reply, CommandOutcome) {
    match decided {
        Ok(decision) => (answer(&decision), CommandOutcome::by(decision.is_allowed())),
        Err(StoreError::Overloaded(overloaded)) => (Reply::busy(overloaded), CommandOutcome::Shed),
        Err(error) => (failure(error), CommandOutcome::Error),
    }
}

/// Limited, limit, remaining, seconds to wait or -1, seconds until the bucket is full.
fn answer(decision: &Decision) -> Reply {
    // Rounded up: with 0 a caller would retry at once and be denied again.
    let seconds = |span: Span| span.as_secs_ceil() as i64;
    let retry_after = if decision.is_allowed() { None } else { decision.retry_after() };
    let numbers = [
        i64::from(!decision.is_allowed()),
        i64::from(decision.limit),
        i64::from(decision.remaining),
        retry_after.map_or(-1, seconds),
        seconds(decision.reset_after),
    ];
    Reply::Integers(numbers)
}

/// Why there is no decision, with Redis' error codes.
fn failure(error: &StoreError) -> Reply {
    let code = if matches!(error, StoreError::Full { .. }) { "OOM" } else { "ERR" };
    Reply::error(format!("{code} {error}"))
}
