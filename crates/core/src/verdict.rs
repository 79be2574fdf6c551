//! The verdict of several rules on one request: all or nothing.

use crate::algorithm::{Change, State, decide};
use crate::charge::Charge;
use crate::decision::{Decision, Outcome};
use crate::denial::{Facts, Template};
use crate::exception::ExceptionKind;
use crate::rule::Rule;
use crate::rule_spec::Enforcement;
use crate::time::{Span, Timestamp};

/// Decides all charges of a request together: if they [deny](is_denied) it, nothing is charged anywhere.
///
/// Each decision is what its rule alone says, with `remaining` and `reset_after` as after this request. The store has
/// to apply the changes.
pub fn decide_all<'s>(
    charges: &[Charge],
    states: impl IntoIterator<Item = &'s State> + Clone,
    now: Timestamp,
) -> Vec<(Decision, Change)> {
    let mut decided: Vec<(Decision, Change)> = charges
        .iter()
        .zip(states.clone())
        .map(|(charge, state)| decide(charge.quota(), charge.cost, state, now))
        .collect();
    if is_denied(charges.iter().zip(decided.iter().map(|(decision, _)| decision))) {
        for ((charge, state), (decision, change)) in charges.iter().zip(states).zip(&mut decided) {
            // The change of a denial only repairs a clock jump; that of an admission is discarded.
            if decision.is_allowed() {
                let (untouched, _) = decide(charge.quota(), 0, state, now);
                *decision = Decision { outcome: decision.outcome, ..untouched };
                *change = Change::None;
            }
        }
    }
    decided
}

/// Whether a request is denied: by an enforced rule, or by all of its rules with `mode: quota` together.
pub fn is_denied<'d>(decided: impl IntoIterator<Item = (&'d Charge, &'d Decision)>) -> bool {
    let (mut has_room, mut is_over) = (false, false);
    for (charge, decision) in decided {
        match (charge.enforcement(), decision.is_allowed()) {
            (Enforcement::Enforce, false) => return true,
            (Enforcement::Quota, true) => has_room = true,
            (Enforcement::Quota, false) => is_over = true,
            _ => {}
        }
    }
    is_over && !has_room
}

fn denies(rule: &Rule, decision: &Decision) -> bool {
    rule.is_enforced() && !decision.is_allowed()
}

/// If every rule with `mode: quota` is over its limit, the one that has room again first: then the request passes.
fn soonest_of_used_up_quotas(rows: &[Row]) -> Option<usize> {
    let mut soonest: Option<(usize, u64)> = None;
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.charge.rule.is_quota()) {
        if row.decision.is_allowed() {
            return None;
        }
        let wait = row.decision.retry_after().map_or(u64::MAX, Span::as_micros);
        if soonest.is_none_or(|(_, shortest)| wait < shortest) {
            soonest = Some((index, wait));
        }
    }
    soonest.map(|(index, _)| index)
}

/// What answered, the most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    Store,
    /// An exception: it blocked or allowed the key, or the granted limit was applied.
    Exception,
    /// A remembered denial that is still exact.
    DenyCache,
    /// Tokens taken from the store ahead of use.
    Lease,
    /// This process, while the store is unreachable.
    Local,
    /// The rule's failure policy, because the state is unknown.
    Policy,
}

impl Source {
    /// Every source, for exporters.
    pub const ALL: [Source; 6] =
        [Source::Store, Source::Exception, Source::DenyCache, Source::Lease, Source::Local, Source::Policy];

    /// The name in answers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Exception => "exception",
            Source::DenyCache => "deny_cache",
            Source::Lease => "lease",
            Source::Local => "local",
            Source::Policy => "policy",
        }
    }
}

/// One rule's answer within a verdict.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rule, its key and the cost.
    pub charge: Charge,
    /// What the rule says.
    pub decision: Decision,
    /// What answered.
    pub source: Source,
}

/// A soft limit that a request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation<'v> {
    /// The rule's name.
    pub rule: &'v str,
    /// The burst of a bucket, or N.
    pub limit: u32,
    /// How much of the request's cost did not fit.
    pub over_by: u32,
    /// When the request would have fit; `None` if never.
    pub retry_after: Option<Span>,
}

/// The answer for the request.
#[derive(Clone, Debug)]
pub struct Verdict {
    rows: Vec<Row>,
    limiting: Option<usize>,
    unavailable: bool,
}

impl Verdict {
    /// From rows in file order.
    pub fn new(rows: Vec<Row>) -> Verdict {
        // The first of the longest: a later row must be strictly longer. "Never" is longer than anything.
        let wait = |row: &Row| row.decision.retry_after().map_or(u64::MAX, Span::as_micros);
        let mut limiting: Option<usize> = None;
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| denies(&row.charge.rule, &row.decision)) {
            if limiting.is_none_or(|longest| wait(row) > wait(&rows[longest])) {
                limiting = Some(index);
            }
        }
        if limiting.is_none() {
            limiting = soonest_of_used_up_quotas(&rows);
        }
        let denials = rows.iter().filter(|row| denies(&row.charge.rule, &row.decision));
        let unavailable =
            denials.clone().next().is_some() && denials.into_iter().all(|row| row.source == Source::Policy);
        Verdict { rows, limiting, unavailable }
    }

    /// Whether the request may pass.
    pub fn is_allowed(&self) -> bool {
        self.limiting.is_none()
    }

    /// Denied because the store could not answer, not because a limit was reached.
    pub fn is_unavailable(&self) -> bool {
        self.unavailable
    }

    /// The store could not answer for at least one rule, and something else did.
    pub fn is_degraded(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.source, Source::Local | Source::Policy))
    }

    /// The enforced rule that makes the request wait longest, when it was denied.
    pub fn limiting(&self) -> Option<&Row> {
        self.limiting.map(|index| &self.rows[index])
    }

    /// The most informative rule for a client: the limiting one of a denial, otherwise the enforced one with the
    /// smallest share left.
    pub fn binding(&self) -> Option<&Row> {
        self.binding_of(Rule::is_enforced)
    }

    /// The same among the rules that limit headers show.
    pub(crate) fn binding_in_headers(&self) -> Option<&Row> {
        self.binding_of(Rule::is_in_headers)
    }

    fn binding_of(&self, is_meant: impl Fn(&Rule) -> bool) -> Option<&Row> {
        let share = |row: &&Row| u64::from(row.decision.remaining) * (1 << 32) / u64::from(row.decision.limit);
        let asked = self.rows.iter().filter(|row| is_meant(&row.charge.rule) && !row.is_unasked());
        self.limiting().filter(|row| is_meant(&row.charge.rule)).or_else(|| asked.min_by_key(share))
    }

    /// The soft limits (`mode: annotate`) that the request is over, in file order.
    pub fn annotations(&self) -> impl Iterator<Item = Annotation<'_>> {
        let over = self.rows.iter().filter(|row| row.is_annotated());
        over.map(|row| Annotation {
            rule: row.charge.rule.name(),
            limit: row.decision.limit,
            over_by: row.charge.cost.saturating_sub(row.decision.remaining).max(1),
            retry_after: row.decision.retry_after(),
        })
    }

    /// Zero when allowed; the longest wait of the enforced rules that deny; `None` if one of them can never pass.
    pub fn retry_after(&self) -> Option<Span> {
        self.limiting().map_or(Some(Span::ZERO), |row| row.decision.retry_after())
    }

    /// How long an admitted request has to wait for its turn.
    pub fn delay(&self) -> Span {
        let enforced = self.rows.iter().filter(|row| row.charge.rule.is_enforced());
        enforced.map(|row| row.decision.delay()).max().unwrap_or(Span::ZERO)
    }

    /// What answered: the least certain of all rows.
    pub fn source(&self) -> Source {
        self.rows.iter().map(|row| row.source).max().unwrap_or(Source::Store)
    }

    /// One row per rule that applied, in file order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl Row {
    /// The answer for a decided charge, including one under another limit than the rule's. Under a grant the exception
    /// answered, whether the store was asked or a cached denial or a lease spared the call; but never for a store that
    /// could not answer.
    pub fn decided(charge: Charge, decision: Decision, source: Source) -> Row {
        let source = match source {
            Source::Store | Source::DenyCache | Source::Lease if charge.exception().is_some() => Source::Exception,
            source => source,
        };
        Row { charge, decision, source }
    }

    /// The failure policy's answer for a rule whose state is unreachable.
    pub fn without_store(charge: Charge, outcome: Outcome) -> Row {
        Row::unread(charge, outcome, Source::Policy)
    }

    /// The answer for a rule where an exception decides without the store; `None` if it does not.
    pub fn settled(charge: &Charge, now: Timestamp) -> Option<Row> {
        let exception = charge.exception()?;
        let outcome = match exception.kind {
            ExceptionKind::Block => Outcome::Denied { retry_after: exception.until.map(|until| until.since(now)) },
            ExceptionKind::Allow => Outcome::ALLOWED,
            ExceptionKind::Grant(_) => return None,
        };
        Some(Row::unread(charge.clone(), outcome, Source::Exception))
    }

    /// The row of a rule that was not asked, because an exception from another rule denies the request.
    pub fn unasked(charge: Charge) -> Row {
        Row::unread(charge.on_own_terms(), Outcome::ALLOWED, Source::Exception)
    }

    /// Whether the rule was not asked: it applies to the request, but its answer is unknown.
    pub fn is_unasked(&self) -> bool {
        self.source == Source::Exception && self.charge.exception().is_none()
    }

    /// Whether the request is over this soft limit. A store that could not answer does not know.
    pub fn is_annotated(&self) -> bool {
        let is_known = !matches!(self.source, Source::Policy) && !self.is_unasked();
        self.charge.rule.annotates() && !self.decision.is_allowed() && is_known
    }

    /// Whether an exception blocks the key.
    pub fn is_blocked(&self) -> bool {
        self.charge.exception().is_some_and(|exception| exception.kind == ExceptionKind::Block)
    }

    fn unread(charge: Charge, outcome: Outcome, source: Source) -> Row {
        let limit = charge.quota().limit();
        let remaining = if matches!(outcome, Outcome::Allowed { .. }) { limit } else { 0 };
        let decision = Decision { outcome, limit, remaining, reset_after: Span::ZERO, hold: None };
        Row { charge, decision, source }
    }

    /// How long the client can use no more than `remaining`: for a bucket until its next token, for a window until
    /// its end. Never longer than the `retry_after` of a denied client.
    pub fn until_more(&self) -> Span {
        let decision = &self.decision;
        if self.is_blocked() {
            return decision.retry_after().unwrap_or(Span::ZERO);
        }
        let quota = self.charge.quota();
        let more = if quota.algorithm().has_burst() && decision.remaining < decision.limit {
            let later_tokens = u64::from(decision.limit - decision.remaining - 1);
            let their_time =
                u128::from(later_tokens) * u128::from(quota.period().as_micros()) / u128::from(quota.count());
            decision.reset_after - Span::from_micros(their_time as u64)
        } else {
            decision.reset_after
        };
        match decision.outcome {
            Outcome::Denied { retry_after: Some(wait) } => more.min(wait),
            _ => more,
        }
    }
}

impl Template {
    /// The text for a denied request.
    pub fn fill(&self, verdict: &Verdict, row: &Row) -> String {
        let Decision { limit, remaining, .. } = row.decision;
        self.text(&Facts { rule: row.charge.rule.name(), limit, remaining, retry_after: verdict.retry_after() })
    }
}
