//! Attack, or a badly tuned limit? A plain sentence with its evidence.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Serialize;
use tollkeeper::Enforcement;

use crate::evidence::{Enough, Evidence, Few, Period};
use crate::words::counted;

/// What it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// No client was denied.
    Quiet,
    /// Some clients ignore the limit.
    Abuse,
    /// The limit denies clients that it should let pass.
    TooLow,
    /// Something of both, or these numbers cannot distinguish the two.
    Mixed,
    /// Too few denials.
    NotEnoughData,
}

/// A judgement with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// What it looks like.
    pub kind: Kind,
    /// The same for people.
    pub sentence: String,
    /// The numbers behind it.
    pub evidence: Evidence,
}

/// Fewer denials may be chance.
const ENOUGH_DENIALS: u64 = 20;
/// A rule that stops bots may deny this share of other keys and still stop little else.
const FEW_OTHERS: f64 = 0.01;
/// If the limit would have to be raised by more than this factor, it is not just set too low.
const FAR_ABOVE: f64 = 4.0;

/// An earlier judgement. The same one is made again until the numbers have changed by more than a little, so that it
/// does not alternate between two at a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What it was.
    pub kind: Kind,
    /// Whether it was about a few keys.
    pub by_few: bool,
}

/// Where one judgement ends and another begins.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    /// From this share of keys on, a limit affects clients in general rather than some.
    everybody: f64,
    /// If at least this share of the denied keys behaves in one way, they all count as such;
    most: f64,
    /// at most this much is the opposite.
    half: f64,
}

impl Thresholds {
    /// Those that keep an earlier judgement for a little longer.
    fn after(before: Option<Judgement>) -> Thresholds {
        match before.map(|before| before.kind) {
            Some(Kind::TooLow) => Thresholds { everybody: 0.15, most: 0.9, half: 0.6 },
            Some(Kind::Abuse) => Thresholds { everybody: 0.2, most: 0.7, half: 0.4 },
            Some(Kind::Mixed) => Thresholds { everybody: 0.25, most: 0.85, half: 0.45 },
            _ => Thresholds { everybody: 0.2, most: 0.8, half: 0.5 },
        }
    }
}

impl Finding {
    /// Judges the evidence, after an earlier judgement.
    pub fn of(evidence: Evidence, before: Option<Judgement>) -> (Finding, Judgement) {
        let (kind, sentence, by_few) = evidence.judge(before);
        let sentence = sentence + &evidence.besides();
        (Finding { kind, sentence, evidence }, Judgement { kind, by_few })
    }
}

impl Evidence {
    fn judge(&self, before: Option<Judgement>) -> (Kind, String, bool) {
        let last = match self.period {
            Period::UpToNow => format!("in the last {}", horizon(self.seconds)),
            Period::OfLog => format!("in {}", counted_span(self.seconds)),
        };
        if let Some((kind, sentence)) = self.judge_few_denials(&last) {
            return (kind, sentence, false);
        }
        let thresholds = Thresholds::after(before);
        let few = self.few.filter(|few| !self.one_key && self.is_concentrated(*few, thresholds, before));
        let (kind, sentence) = match few {
            _ if self.one_key => self.shared_by_all(&last),
            Some(few) if self.slots => self.slots_of_few(few),
            Some(few) => self.caused_by_few(few, before),
            None if self.slots => self.slots_of_many(&last, thresholds),
            None => self.caused_by_many(&last, thresholds),
        };
        (kind, sentence, few.is_some())
    }

    /// The judgement where there is little or nothing to judge.
    fn judge_few_denials(&self, last: &str) -> Option<(Kind, String)> {
        if self.requests == 0 {
            return Some((Kind::NotEnoughData, format!("no request {last}")));
        }
        if self.denied == 0 {
            let nobody = match self.mode {
                Enforcement::Annotate => "nobody was over the limit",
                Enforcement::Quota => "nobody was over this quota",
                _ if self.blocked > 0 => "the limit denied nobody",
                _ => "nobody was denied",
            };
            let requests = counted(self.requests - self.blocked.min(self.requests), "request");
            return Some((Kind::Quiet, format!("{nobody} {last}: {requests} by {}", counted(self.keys, "key"))));
        }
        let denials = counted(self.denied, self.denial());
        (self.denied < ENOUGH_DENIALS).then(|| (Kind::NotEnoughData, format!("{denials} {last}: too few to tell")))
    }

    fn caused_by_many(&self, last: &str, thresholds: Thresholds) -> (Kind, String) {
        let share = self.of_keys(self.share_of_keys_denied);
        let hammering = self.share_hammering.filter(|_| self.denies()).unwrap_or(0.0);
        let keys = format!("{share} of all keys {} {last}{}", self.were_denied(), self.waiting());
        if hammering >= thresholds.most {
            return self.many_hammer(hammering, last, thresholds);
        }
        if self.share_of_keys_denied >= thresholds.everybody && hammering <= thresholds.half {
            return (Kind::TooLow, format!("{keys}: the limit looks too low{}", self.would_do()));
        }
        if self.share_of_keys_denied >= thresholds.everybody {
            let some = "some clients ignore Retry-After, or the limit is too low";
            let retry = format!(", and {} of those retry without waiting", self.of_keys(hammering));
            return (
                Kind::Mixed,
                format!("{share} of all keys {} {last}{retry}: {some}{}", self.were_denied(), self.would_do()),
            );
        }
        (Kind::Mixed, format!("{keys}: neither a few keys nor all of them{}", self.would_do()))
    }

    /// A limit of requests at the same time: no wait is given, and no rate would be enough.
    fn slots_of_few(&self, few: Few) -> (Kind, String) {
        let theirs = format!("{} of {}s come from {}", percent(few.share), self.denial(), counted(few.keys, "key"));
        let have = if few.keys == 1 { "has" } else { "have" };
        (Kind::Mixed, format!("{theirs} that {have} all slots in use: more slots, or requests that end sooner"))
    }

    fn slots_of_many(&self, last: &str, thresholds: Thresholds) -> (Kind, String) {
        let share = self.of_keys(self.share_of_keys_denied);
        let keys = format!("{share} of all keys {} {last} with all slots in use", self.were_denied());
        if self.share_of_keys_denied >= thresholds.everybody {
            return (Kind::TooLow, format!("{keys}: the limit looks too low, or slots are released too late"));
        }
        (Kind::Mixed, format!("{keys}: neither a few keys nor all of them"))
    }

    /// `; 120 requests of blocked keys were denied in addition`.
    fn besides(&self) -> String {
        /// Later than this, what caused the denials seems to be over.
        const OVER: u64 = 120;
        let mut text = String::new();
        if let Some(ago) = self.last_denied_seconds_ago.filter(|ago| *ago >= OVER) {
            text += &format!("; the last {} was {} ago", self.denial(), counted(ago / 60, "minute"));
        }
        if self.blocked > 0 {
            let was = if self.blocked == 1 { "was" } else { "were" };
            let denied = match self.mode {
                Enforcement::Shadow => "would have been denied".into(),
                Enforcement::Annotate => format!("{was} annotated"),
                _ => format!("{was} denied"),
            };
            text += &format!("; {} of blocked keys {denied} in addition", counted(self.blocked, "request"));
        }
        text
    }

    /// Whether a few keys stand out, rather than being all that were denied.
    fn is_concentrated(&self, few: Few, thresholds: Thresholds, before: Option<Judgement>) -> bool {
        let (few_keys, all) = match before {
            Some(Judgement { by_few: true, .. }) => (few.keys * 3, self.keys_denied * 2),
            _ => (few.keys * 2, self.keys_denied),
        };
        self.share_of_keys_denied < thresholds.everybody || self.keys_denied <= 3 || few_keys <= all
    }

    fn shared_by_all(&self, last: &str) -> (Kind, String) {
        let share = percent(self.denied as f64 / self.requests as f64);
        let sentence = format!(
            "{share} of requests {} {last}, and all share one key: a rule with a key per client would show who{}",
            self.were_denied(),
            self.enough
                .as_ref()
                .map(|enough| format!("; {} would have {} nobody", enough.written, self.stopped()))
                .unwrap_or_default()
        );
        (Kind::Mixed, sentence)
    }

    fn caused_by_few(&self, few: Few, before: Option<Judgement>) -> (Kind, String) {
        let one = few.keys == 1;
        let theirs = format!("{} of {}s come from {}", percent(few.share), self.denial(), counted(few.keys, "key"));
        match few.suspects {
            Some(suspects) if suspects * 2 > few.keys => {
                let look = if one { "looks like a bot" } else { "look like bots" };
                let others = self.keys_denied.saturating_sub(few.keys);
                let share = others as f64 / self.keys.max(1) as f64;
                if share > FEW_OTHERS {
                    let rest = format!("{} ({} of all)", counted(others, "other key"), self.of_keys(share));
                    return (Kind::Mixed, format!("{theirs} that {look}, the rest from {rest}{}", self.would_do()));
                }
                let little = "and the rule would stop little else";
                return (Kind::Abuse, format!("{theirs} that {look}, {little}: looks like abuse"));
            }
            Some(0) => {
                let do_not = if one { "does not look like a bot" } else { "do not look like bots" };
                return (
                    Kind::Mixed,
                    format!("{theirs} that {do_not}: a busy client in need of a higher limit, or a proxy for many"),
                );
            }
            _ => {}
        }
        if !self.denies() {
            return (Kind::Mixed, format!("{theirs}: if enforced, the rule would stop little else"));
        }
        let was_abuse = before.is_some_and(|before| before.kind == Kind::Abuse);
        match few.hammering.cmp(&few.waiting) {
            order if order == Ordering::Greater || (order == Ordering::Equal && was_abuse && few.hammering > 0) => {
                let retry = if one { "retries" } else { "retry" };
                (Kind::Abuse, format!("{theirs} that {retry} without waiting: looks like abuse"))
            }
            Ordering::Less => {
                let waits = if one { "waits before retrying: a client" } else { "wait before retrying: clients" };
                (Kind::Mixed, format!("{theirs} that {waits} in need of a higher limit rather than abuse"))
            }
            Ordering::Equal if few.hammering == 0 => (
                Kind::Mixed,
                format!("{theirs} that {} not come back yet: too early to tell", if one { "has" } else { "have" }),
            ),
            _ => (Kind::Mixed, format!("{theirs}, half of which retry without waiting: look at each")),
        }
    }

    fn many_hammer(&self, hammering: f64, last: &str, thresholds: Thresholds) -> (Kind, String) {
        let share = self.of_keys(self.share_of_keys_denied);
        let keys = if self.share_of_keys_denied >= thresholds.everybody {
            format!("{share} of all keys")
        } else {
            format!("{} ({share} of all)", counted(self.keys_denied, "key"))
        };
        let ask = format!("{keys} were denied {last}, and {} of those retry without waiting", self.of_keys(hammering));
        match &self.enough {
            Some(enough) if enough.times <= FAR_ABOVE => {
                let either = "clients that ignore Retry-After, or a limit that is too low";
                (Kind::Mixed, format!("{ask}: {either}{}", self.would_do()))
            }
            _ => (Kind::Abuse, format!("{ask}: looks like abuse from many keys at once")),
        }
    }

    /// `, and 92 % of those wait before retrying`, where most do.
    fn waiting(&self) -> String {
        let waiting = self.share_hammering.filter(|share| self.denies() && *share < 0.5).map(|share| 1.0 - share);
        waiting.map(|share| format!(", and {} of those wait before retrying", self.of_keys(share))).unwrap_or_default()
    }

    /// `; 120/min with burst 40 would have denied 1 %`.
    fn would_do(&self) -> String {
        let Some(Enough { written, share_of_keys_denied, .. }) = &self.enough else { return String::new() };
        let nobody = *share_of_keys_denied == 0.0 && self.exact;
        let whom = if nobody { "nobody".into() } else { self.of_keys(*share_of_keys_denied) };
        format!("; {written} would have {} {whom}", self.stopped())
    }

    /// Whether a higher limit is what is needed: for all keys, not for a few of them.
    pub fn is_helped_by_more(&self) -> bool {
        self.few.is_none_or(|few| few.keys * 2 > self.keys_denied) || self.one_key
    }

    /// A share of keys; from a sample, neither all nor none is claimed.
    fn of_keys(&self, share: f64) -> String {
        percent(if self.exact { share } else { share.clamp(0.001, 0.999) })
    }

    /// Whether requests over the limit are denied. Those over one of several quotas may have passed by another, and were not
    /// asked to wait.
    fn denies(&self) -> bool {
        self.mode == Enforcement::Enforce
    }

    fn denial(&self) -> &'static str {
        match self.mode {
            Enforcement::Shadow => "would-be denial",
            Enforcement::Annotate => "annotation",
            Enforcement::Quota => "overrun",
            _ => "denial",
        }
    }

    fn were_denied(&self) -> &'static str {
        match self.mode {
            Enforcement::Shadow => "would have been denied",
            Enforcement::Annotate => "were over the limit",
            Enforcement::Quota => "were over this quota",
            _ => "were denied",
        }
    }

    /// What another limit does to requests beyond it.
    fn stopped(&self) -> &'static str {
        match self.mode {
            Enforcement::Annotate => "annotated",
            _ => "denied",
        }
    }
}

/// After "the last": `hour`, `47 minutes`, `20 seconds`, `second`.
pub fn horizon(seconds: u64) -> String {
    match seconds {
        3_570.. => "hour".to_string(),
        0..2 => "second".to_string(),
        2..120 => counted(seconds, "second"),
        seconds => counted((seconds + 30) / 60, "minute"),
    }
}

/// A whole span: `1 hour`, `26 hours`, `12 days`.
pub(crate) fn counted_span(seconds: u64) -> String {
    match seconds {
        172_800.. => counted((seconds + 43_200) / 86_400, "day"),
        3_570.. => counted((seconds + 1_800) / 3_600, "hour"),
        0..2 => counted(1, "second"),
        seconds => horizon(seconds),
    }
}

/// The same for longer times: `6 hours`.
pub fn span_of(seconds: u64) -> String {
    match seconds {
        7_000.. => counted((seconds + 1_800) / 3_600, "hour"),
        seconds => horizon(seconds),
    }
}

/// Whole percent. 100 % and 0 % mean exactly that.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_string(),
        hundredths if hundredths >= 100.0 => "100 %".to_string(),
        hundredths if hundredths > 99.0 => "over 99 %".to_string(),
        hundredths if hundredths < 1.0 => "under 1 %".to_string(),
        hundredths => format!("{hundredths:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_claim_no_more_than_is_true() {
        let shown = [0.0, 0.0001, 0.0099, 0.01, 0.384, 0.97, 0.99, 0.9951, 0.9996, 1.0].map(percent);
        let expected =
            ["0 %", "under 1 %", "under 1 %", "1 %", "38 %", "97 %", "99 %", "over 99 %", "over 99 %", "100 %"];
        assert_eq!(shown, expected);
    }

    /// Another limit for a rule with `mode: quota` "would have turned away nobody", in words of its own.
    #[test]
    fn what_another_limit_would_have_done_has_one_word() {
        for (mode, done) in
            [(Enforcement::Enforce, "denied"), (Enforcement::Quota, "denied"), (Enforcement::Annotate, "annotated")]
        {
            let (limit, written) = ("9/min".to_string(), "9/min".to_string());
            let enough = Enough { limit, burst: None, written, times: 3.0, share_of_keys_denied: 0.0 };
            let evidence = Evidence { mode, enough: Some(enough), exact: true, ..Evidence::default() };
            assert_eq!(evidence.would_do(), format!("; 9/min would have {done} nobody"));
        }
    }

    /// "100 % of all keys were denied: neither a few keys nor all of them", it said when most keys, but not nearly all, retried
    /// without waiting.
    #[test]
    fn when_all_keys_are_denied_the_sentence_says_how_they_retry() {
        let evidence = Evidence {
            seconds: 120,
            requests: 3_000,
            denied: 1_500,
            keys: 100,
            keys_denied: 100,
            share_of_keys_denied: 1.0,
            exact: true,
            share_hammering: Some(0.65),
            ..Evidence::default()
        };
        let (finding, _) = Finding::of(evidence, None);
        let expected = "100 % of all keys were denied in the last 2 minutes, and 65 % of those retry without waiting: some clients \
                        ignore Retry-After, or the limit is too low";
        assert_eq!((finding.kind, finding.sentence.as_str()), (Kind::Mixed, expected));
    }
}
