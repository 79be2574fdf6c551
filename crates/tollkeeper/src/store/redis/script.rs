//! The scripts and their arguments. Nothing here uses a connection.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use redis::Cmd;
use tollkeeper_core::{Algorithm, Hold, Quota, Receipt, Refill, Timestamp};

use super::msgpack;

/// The files with all algorithms.
const LAWS: &[&str] = &[
    include_str!("exact.lua"),
    include_str!("bucket.lua"),
    include_str!("fixed_window.lua"),
    include_str!("sliding_counter.lua"),
    include_str!("log.lua"),
];

/// Decides charges: see `charge.lua`.
pub(super) static CHARGE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[LAWS, &[include_str!("quotas.lua"), include_str!("charge.lua")]].concat()));

/// The same for buckets only, which are the most common: it loads faster.
pub(super) static CHARGE_BUCKETS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        include_str!("exact.lua"),
        include_str!("bucket.lua"),
        include_str!("quotas.lua"),
        include_str!("charge.lua"),
    ])
});

/// The same for one request to one bucket: see `charge_one.lua`.
pub(super) static CHARGE_ONE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        include_str!("charge_quick.lua"),
        include_str!("exact.lua"),
        include_str!("bucket.lua"),
        include_str!("charge_one.lua"),
    ])
});

/// The same for requests that differ only in their key, to one bucket: see `charge_run.lua`.
pub(super) static CHARGE_RUN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[include_str!("exact.lua"), include_str!("bucket.lua"), include_str!("charge_run.lua")])
});

/// The additional files for refunds.
const REFUNDS: &[&str] = &[
    include_str!("reduce.lua"),
    include_str!("quotas.lua"),
    include_str!("refunds.lua"),
    include_str!("give_back.lua"),
];

/// Refunds charges: see `refund.lua`.
pub(super) static REFUND: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[LAWS, REFUNDS, &[include_str!("refund.lua")]].concat()));

/// Settles estimates: see `settle.lua`.
pub(super) static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[LAWS, REFUNDS, &[include_str!("settle.lua")]].concat()));

/// Resets a state: see `reset.lua`.
pub(super) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[include_str!("refunds.lua"), include_str!("reset.lua")]));

/// Takes places among those of an owner of reservations: see `own.lua`.
pub(super) static OWN: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("own.lua")]));

/// Starts tracking the refunds of buckets: see `watch.lua`.
pub(super) static WATCH: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("watch.lua")]));

/// Releases a `concurrency` slot: see `release.lua`.
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        include_str!("exact.lua"),
        include_str!("log.lua"),
        include_str!("reduce.lua"),
        include_str!("release.lua"),
    ])
});

/// Holds a `concurrency` slot for another period: see `renew.lua`.
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&[
        include_str!("exact.lua"),
        include_str!("log.lua"),
        include_str!("reduce.lua"),
        include_str!("renew.lua"),
    ])
});

/// Counts the instances that are alive: see `heartbeat.lua`.
pub(super) static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| Script::new(&[include_str!("heartbeat.lua")]));

/// Changes exceptions: see `exceptions.lua`.
pub(super) static EXCEPTIONS: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[include_str!("version.lua"), include_str!("exceptions.lua")]));

/// Puts lost exceptions back: see `restore.lua`.
pub(super) static RESTORE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&[include_str!("version.lua"), include_str!("restore.lua")]));

/// All of them, for `SCRIPT LOAD`.
pub(super) fn all() -> [&'static Script; 14] {
    [
        &CHARGE,
        &CHARGE_BUCKETS,
        &CHARGE_ONE,
        &CHARGE_RUN,
        &REFUND,
        &SETTLE,
        &RESET,
        &OWN,
        &WATCH,
        &RELEASE,
        &RENEW,
        &HEARTBEAT,
        &EXCEPTIONS,
        &RESTORE,
    ]
}

/// A script joined from its files.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    sha: String,
}

impl Script {
    fn new(files: &[&str]) -> Script {
        let source = files.concat();
        let sha = redis::Script::new(&source).get_hash().to_string();
        Script { source, sha }
    }

    /// The text, for `SCRIPT LOAD`.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Its hash.
    #[cfg(test)]
    pub(super) fn sha(&self) -> &str {
        &self.sha
    }

    /// Runs it by its hash. A server that does not have it (restarted, promoted, flushed) answers `NOSCRIPT`; the
    /// same call by [`Script::eval`] then runs and loads it.
    pub(super) fn evalsha(&self, call: &Call) -> Cmd {
        call.command("EVALSHA", &self.sha)
    }

    /// Runs it by its text.
    pub(super) fn eval(&self, call: &Call) -> Cmd {
        call.command("EVAL", &self.source)
    }
}

/// At what time a call is decided.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// At this time: for replay and tests.
    Given(Timestamp),
    /// By the server's clock, which is expected to show about this time. The windows of a calendar around it go with
    /// the call; if the server's clock is in none of them, the script does nothing and says what time it is.
    Server { about: Timestamp },
}

impl At {
    /// What scripts are given: the time, or nothing.
    fn argument(self) -> Vec<u8> {
        match self {
            At::Given(now) => now.as_micros().to_string().into_bytes(),
            At::Server { .. } => Vec::new(),
        }
    }

    fn expected(self) -> Timestamp {
        match self {
            At::Given(now) | At::Server { about: now } => now,
        }
    }
}

/// The keys and arguments of one call, all keys in one hash slot.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The `KEYS` of the script.
    pub(super) keys: Vec<Arc<str>>,
    /// Its `ARGV`.
    pub(super) arguments: Vec<Vec<u8>>,
}

impl Call {
    /// One request to one bucket.
    pub(super) fn one(key: Arc<str>, quota: &Quota, refill: Refill, cost: u32, at: At) -> Call {
        Call::to_bucket(vec![key], &[cost], quota, refill, at)
    }

    /// `count` requests for each of these keys, which have the same quota.
    pub(super) fn run(keys: Vec<Arc<str>>, count: u32, quota: &Quota, refill: Refill, cost: u32, at: At) -> Call {
        Call::to_bucket(keys, &[count, cost], quota, refill, at)
    }

    fn to_bucket(keys: Vec<Arc<str>>, asked: &[u32], quota: &Quota, refill: Refill, at: At) -> Call {
        let mut numbers: Vec<i64> = asked.iter().copied().map(i64::from).collect();
        numbers.extend(bucket(refill));
        if quota.former_refills().len() > 0 {
            formers(quota, &mut numbers);
        }
        let numbers = numbers.iter().map(|number| number.to_string().into_bytes());
        Call { keys, arguments: std::iter::once(at.argument()).chain(numbers).collect() }
    }

    /// Releases the slot of `hold`.
    pub(super) fn release(key: String, quota: &Quota, hold: Hold, at: At) -> Call {
        let numbers = [quota.period().as_micros(), hold.at.as_micros(), u64::from(hold.nth)];
        let numbers = numbers.iter().map(|number| number.to_string().into_bytes());
        Call { keys: vec![key.into()], arguments: std::iter::once(at.argument()).chain(numbers).collect() }
    }

    /// Holds the slot of `hold` for another period: the same arguments as for a release.
    pub(super) fn renew(key: String, quota: &Quota, hold: Hold, at: At) -> Call {
        Call::release(key, quota, hold, at)
    }

    /// Refunds what was charged to these keys; the second of each pair counts its refunds.
    pub(super) fn refund<'q>(
        refunds: impl IntoIterator<Item = (String, String, &'q Quota, Receipt)>,
        when: At,
    ) -> Call {
        let (mut quotas, mut numbers, mut keys) = (Quotas::default(), Vec::new(), Vec::new());
        for (key, refunded, quota, Receipt { cost, at, nth, is_lease, .. }) in refunds {
            keys.extend([key, refunded].map(Arc::from));
            let quota = quotas.position(quota) as i64;
            numbers.extend([quota, i64::from(cost), at.as_micros() as i64, i64::from(nth), i64::from(is_lease)]);
        }
        Call::by_quotas(keys, &quotas, numbers, when)
    }

    /// Settles what was charged to these keys at the actual cost; the second of each pair counts its refunds.
    pub(super) fn settle<'q>(
        settled: impl IntoIterator<Item = (String, String, &'q Quota, Receipt, u64, u32)>,
        when: At,
    ) -> Call {
        let (mut quotas, mut numbers, mut keys) = (Quotas::default(), Vec::new(), Vec::new());
        for (key, refunded, quota, receipt, refunded_before, cost) in settled {
            keys.extend([key, refunded].map(Arc::from));
            let Receipt { cost: charged, at, nth, after, .. } = receipt;
            let (full_at, part) = match after {
                None => (-1, 0),
                // Under another pace, what it owed then says nothing about now.
                Some(after) if quota.refill().is_some_and(|refill| refill.tag != after.tag) => (0, 0),
                Some(after) => (after.full_at.as_micros() as i64, i64::from(after.part)),
            };
            let quota = quotas.position(quota) as i64;
            numbers.extend([quota, i64::from(charged), at.as_micros() as i64, i64::from(nth)]);
            numbers.extend([full_at, part, refunded_before.min(1 << 52) as i64, i64::from(cost)]);
        }
        Call::by_quotas(keys, &quotas, numbers, when)
    }

    fn by_quotas(keys: Vec<Arc<str>>, quotas: &Quotas, mut numbers: Vec<i64>, when: At) -> Call {
        let mut all = Vec::new();
        quotas.write(&mut all, when);
        all.append(&mut numbers);
        Call::of_numbers(keys, &all, when)
    }

    /// With its numbers as one argument.
    pub(super) fn of_numbers(keys: Vec<Arc<str>>, numbers: &[i64], when: At) -> Call {
        Call { keys, arguments: vec![when.argument(), msgpack::integers(numbers)] }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(&**key);
        }
        for argument in &self.arguments {
            command.arg(argument.as_slice());
        }
        command
    }
}

/// The quotas of a call, each once.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    pub(super) list: Vec<Quota>,
    /// Of those after the first few.
    positions: HashMap<Quota, usize>,
}

impl Quotas {
    /// Most calls have no more. To compare with them is quicker than to hash one, which has hundreds of bytes.
    const FEW: usize = 4;

    /// Counted from 1, as Lua does.
    pub(super) fn position(&mut self, quota: &Quota) -> usize {
        if let Some(index) = self.list.iter().take(Quotas::FEW).position(|known| known == quota) {
            return index + 1;
        }
        let next = self.list.len() + 1;
        let position = if next <= Quotas::FEW { next } else { *self.positions.entry(*quota).or_insert(next) };
        if position == next {
            self.list.push(*quota);
        }
        position
    }

    /// In the format of `quotas.lua`.
    pub(super) fn write(&self, out: &mut Vec<i64>, when: At) {
        out.push(self.list.len() as i64);
        for quota in &self.list {
            if let Some(calendar) = quota.calendar() {
                let starts = calendar.starts_around(when.expected());
                out.extend([7, i64::from(quota.limit()), starts.len() as i64]);
                out.extend(starts.iter().map(|start| start.as_micros() as i64));
                continue;
            }
            let was_other = quota.former_refills().len() > 0;
            out.push(match quota.algorithm() {
                Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => 1 + 5 * i64::from(was_other),
                Algorithm::FixedWindow => 2,
                Algorithm::SlidingWindowCounter => 3,
                Algorithm::SlidingWindowLog => 4,
                Algorithm::Concurrency => 5,
            });
            if was_other {
                formers(quota, out);
            }
            match quota.refill() {
                Some(refill) => out.extend(bucket(refill)),
                None => out.extend([i64::from(quota.limit()), quota.period().as_micros() as i64]),
            }
        }
    }
}

/// The numbers of a bucket.
fn bucket(refill: Refill) -> [i64; 7] {
    let Refill { token_whole, token_part, denominator, full_whole, full_part, burst, tag } = refill;
    let numbers = [token_whole, token_part, denominator, full_whole, full_part].map(|number| number as i64);
    let [token_whole, token_part, denominator, full_whole, full_part] = numbers;
    [burst.into(), tag.into(), token_whole, token_part, denominator, full_whole, full_part]
}

/// A bucket's former paces: how many, and which, the oldest first.
fn formers(quota: &Quota, out: &mut Vec<i64>) {
    let formers: Vec<_> = quota.former_refills().collect();
    out.push(formers.len() as i64);
    for (refill, until) in formers.into_iter().rev() {
        out.extend(bucket(refill));
        out.push(until.as_micros() as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quota_has_a_place_of_its_own() {
        let all: Vec<Quota> = (1..=9).map(|burst| Quota::per_second(9).burst(burst).build().expect("valid")).collect();
        let mut quotas = Quotas::default();
        for _ in 0..2 {
            let positions: Vec<usize> = all.iter().map(|quota| quotas.position(quota)).collect();
            assert_eq!(positions, Vec::from_iter(1..=9));
        }
        assert_eq!(quotas.list, all);
    }
}
