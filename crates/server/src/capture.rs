//! Notes about requests, in lists that [`crate::observer`] reads later.
//!
//! Threads write to lists of their own, so a lock is contended only while its list is swapped for reading. A note
//! allocates nothing but room in its list, which is bounded: what does not fit is counted and left out.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use tokio::sync::Notify;
use tollkeeper::{Exception, Request, Row, Rule, Source, Span, Timestamp};

use crate::privacy::{MAX_KEY, bounded};

/// Notes that one list has room for, and bytes of text.
const EVENTS: usize = 8_192;
const TEXT: usize = 512 * 1_024;
/// Lists, at most.
const SHARDS: usize = 8;
/// The longest address and endpoint that are remembered in full.
const MAX_IP: usize = 64;
const MAX_ENDPOINT: usize = 200;

/// Which decisions are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// All, for insight and the audit.
    Everything,
    /// Denials only, for the audit. Allowed requests cost nothing here.
    Denials,
}

/// Lists of notes.
#[derive(Debug)]
pub(crate) struct Capture {
    noted: Noted,
    shards: Box<[Mutex<Batch>]>,
    /// Wakes a reader that waits for the first note in an empty list.
    pub(crate) begun: Notify,
    /// Wakes the reader before a list is full.
    pub(crate) filling: Notify,
    dropped_requests: AtomicU64,
    dropped_denials: AtomicU64,
}

/// A list, and the rules and texts that its notes refer to.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    events: Vec<Event>,
    /// A rule may be here more than once.
    rules: Vec<Arc<Rule>>,
    text: String,
}

#[derive(Debug)]
struct Event {
    /// Its place among the rules. All threads would change the counter of an `Arc`, twice for every note.
    rule: u16,
    at: Timestamp,
    cost: u32,
    variant: u16,
    key: u16,
    on_own_terms: bool,
    /// Where its texts begin.
    text: u32,
    denial: Option<Denial>,
}

#[derive(Clone, Debug)]
struct Denial {
    /// The exception that blocks the key, if that is the reason.
    block: Option<Arc<Exception>>,
    remaining: u32,
    retry_after: Option<Span>,
    /// Lengths; absent when 0.
    user_id: u16,
    ip: u16,
    endpoint: u16,
}

/// A note as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note<'b> {
    pub(crate) rule: &'b Arc<Rule>,
    pub(crate) at: Timestamp,
    pub(crate) cost: u32,
    pub(crate) variant: u16,
    pub(crate) key: &'b str,
    /// Whether the rule's own quota decided: not a grant, nor a quota from the caller.
    pub(crate) on_own_terms: bool,
    pub(crate) denied: Option<Denied<'b>>,
}

/// What is noted about a denial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied<'b> {
    /// The exception that blocks the key, if that is the reason.
    pub(crate) block: Option<&'b Exception>,
    pub(crate) remaining: u32,
    pub(crate) retry_after: Option<Span>,
    pub(crate) user_id: Option<&'b str>,
    pub(crate) ip: Option<&'b str>,
    pub(crate) endpoint: Option<&'b str>,
}

/// The client and the endpoint, as far as the request shows them.
#[derive(Debug, Default)]
struct Circumstances<'r> {
    user_id: Cow<'r, str>,
    ip: Cow<'r, str>,
    /// Its pieces: joined only where they are kept.
    endpoint: [Cow<'r, str>; 3],
}

impl<'r> Circumstances<'r> {
    fn of(request: &'r impl Request) -> Circumstances<'r> {
        let attribute = |name: &str| request.attribute(name).unwrap_or_default();
        let (method, path) = (attribute("method"), without_query(attribute("path")));
        let separator = if method.is_empty() || path.is_empty() { "" } else { " " };
        let endpoint = if method.len() + separator.len() + path.len() <= MAX_ENDPOINT {
            [method, separator.into(), path]
        } else {
            let whole = [&*method, separator, &*path].concat();
            [bounded(&whole, MAX_ENDPOINT).into_owned().into(), Cow::default(), Cow::default()]
        };
        Circumstances {
            user_id: attribute("user_id"),
            // Envoy's name for it.
            ip: request.attribute("ip").or_else(|| request.attribute("remote_address")).unwrap_or_default(),
            endpoint,
        }
    }
}

/// Callers of the API may leave the query string in the path, and it may hold secrets.
fn without_query(path: Cow<'_, str>) -> Cow<'_, str> {
    match (path.find('?'), path) {
        (None, path) => path,
        (Some(end), Cow::Borrowed(path)) => path[..end].into(),
        (Some(end), Cow::Owned(path)) => path[..end].to_string().into(),
    }
}

impl Capture {
    pub(crate) fn new(noted: Noted) -> Capture {
        let shards = thread::available_parallelism().map_or(1, usize::from).min(SHARDS);
        Capture {
            noted,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            begun: Notify::new(),
            filling: Notify::new(),
            dropped_requests: AtomicU64::new(0),
            dropped_denials: AtomicU64::new(0),
        }
    }

    /// Notes the decisions about a request.
    pub(crate) fn note(&self, rows: &[Row], request: &impl Request, now: impl FnOnce() -> Timestamp) {
        let circumstances = match (rows.iter().any(is_violation), self.noted) {
            (true, _) => Circumstances::of(request),
            (false, Noted::Everything) => Circumstances::default(),
            (false, Noted::Denials) => return,
        };
        let now = now();
        let mut batch = self.own();
        let before = batch.events.len();
        for row in rows.iter().filter(|row| self.is_noted(row)) {
            if !batch.push(row, &circumstances, now) {
                self.dropped_requests.fetch_add(1, Relaxed);
                self.dropped_denials.fetch_add(u64::from(is_violation(row)), Relaxed);
            }
        }
        if before == 0 && !batch.events.is_empty() {
            self.begun.notify_one();
        }
        if before < EVENTS / 2 && batch.events.len() >= EVENTS / 2 {
            self.filling.notify_one();
        }
    }

    /// A peek (cost 0) is not a request, and a rule that was not asked has decided nothing.
    fn is_noted(&self, row: &Row) -> bool {
        let is_admission = row.decision.is_allowed() && row.charge.cost > 0 && !row.is_unasked();
        is_violation(row) || (self.noted == Noted::Everything && is_admission)
    }

    /// The list of this thread.
    fn own(&self) -> MutexGuard<'_, Batch> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static THREAD: usize = THREADS.fetch_add(1, Relaxed));
        let shard = THREAD.with(|thread| thread % self.shards.len());
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Swaps each list in turn for an empty one and reads it; returns how many notes there were.
    pub(crate) fn drain(&self, spare: &mut Batch, mut read: impl FnMut(Note<'_>)) -> usize {
        let mut notes = 0;
        for shard in &self.shards {
            mem::swap(spare, &mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            notes += spare.events.len();
            spare.notes().for_each(&mut read);
            spare.clear();
        }
        notes
    }

    /// Decisions that did not fit, and how many of them were denials.
    pub(crate) fn dropped(&self) -> (u64, u64) {
        (self.dropped_requests.load(Relaxed), self.dropped_denials.load(Relaxed))
    }
}

/// Denied because a limit was reached or the key is blocked. A denial by the failure policy is neither.
fn is_violation(row: &Row) -> bool {
    !row.decision.is_allowed() && row.source != Source::Policy
}

impl Batch {
    fn clear(&mut self) {
        self.events.clear();
        self.rules.clear();
        self.text.clear();
    }

    /// The place of a rule. It is looked for among the last few, so that many rules do not make it slow.
    fn place_of(&mut self, rule: &Arc<Rule>) -> u16 {
        const FEW: usize = 8;
        let before = self.rules.len().saturating_sub(FEW);
        let known = self.rules[before..].iter().rposition(|known| Arc::ptr_eq(known, rule));
        let place = known.map_or(self.rules.len(), |place| before + place);
        if known.is_none() {
            self.rules.push(rule.clone());
        }
        // There are at most as many as events.
        place as u16
    }

    /// False when there is no room.
    fn push(&mut self, row: &Row, circumstances: &Circumstances<'_>, at: Timestamp) -> bool {
        let key = bounded(&row.charge.key.value, MAX_KEY);
        let violation = is_violation(row).then_some(circumstances);
        let texts = violation
            .map(|Circumstances { user_id, ip, endpoint }| (bounded(user_id, MAX_KEY), bounded(ip, MAX_IP), endpoint));
        let whole = |endpoint: &[Cow<'_, str>]| endpoint.iter().map(|piece| piece.len()).sum::<usize>();
        let more = texts.as_ref().map_or(0, |(user_id, ip, endpoint)| user_id.len() + ip.len() + whole(*endpoint));
        if self.events.len() == EVENTS || self.text.len() + key.len() + more > TEXT {
            return false;
        }
        let text = self.text.len() as u32;
        self.text.push_str(&key);
        let denial = texts.map(|(user_id, ip, endpoint)| {
            [&user_id, &ip].into_iter().chain(endpoint).for_each(|part| self.text.push_str(part));
            Denial {
                block: row.charge.exception().filter(|_| row.is_blocked()).cloned(),
                remaining: row.decision.remaining,
                retry_after: row.decision.retry_after(),
                user_id: user_id.len() as u16,
                ip: ip.len() as u16,
                endpoint: whole(endpoint) as u16,
            }
        });
        let rule = self.place_of(&row.charge.rule);
        self.events.push(Event {
            rule,
            at,
            cost: row.charge.cost,
            variant: row.charge.key.variant,
            key: key.len() as u16,
            on_own_terms: row.charge.terms().is_none(),
            text,
            denial,
        });
        true
    }

    fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        self.events.iter().map(|event| {
            let mut rest = &self.text[event.text as usize..];
            let mut take = |length: u16| {
                let (text, after) = rest.split_at(length.into());
                rest = after;
                text
            };
            let key = take(event.key);
            let denied = event.denial.as_ref().map(|denial| {
                let mut some = |length: u16| Some(take(length)).filter(|text| !text.is_empty());
                let (remaining, retry_after, block) = (denial.remaining, denial.retry_after, denial.block.as_deref());
                let (user_id, ip, endpoint) = (some(denial.user_id), some(denial.ip), some(denial.endpoint));
                Denied { block, remaining, retry_after, user_id, ip, endpoint }
            });
            let Event { rule, at, cost, variant, on_own_terms, .. } = event;
            let rule = &self.rules[usize::from(*rule)];
            Note { rule, at: *at, cost: *cost, variant: *variant, key, on_own_terms: *on_own_terms, denied }
        })
    }
}

#[cfg(test)]
mod tests {
    use tollkeeper::Descriptor;

    use super::*;

    #[test]
    fn an_endpoint_is_a_method_and_a_bounded_path_without_its_query() {
        let long = format!("/{}", "a".repeat(300));
        let whole = format!("GET {long}");
        let cases = [
            (("GET", "/login?token=secret"), "GET /login"),
            (("", "/login"), "/login"),
            (("GET", ""), "GET"),
            (("GET", &long), &bounded(&whole, MAX_ENDPOINT)),
        ];
        for ((method, path), expected) in cases {
            let request = Descriptor::new([("method", method), ("path", path)]);
            assert_eq!(Circumstances::of(&request).endpoint.concat(), expected);
        }
    }
}
