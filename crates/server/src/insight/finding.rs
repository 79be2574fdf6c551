//! Attack, or a badly tuned limit? A plain sentence with its evidence.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::Serialize;

use super::demand::grouped;
use super::evidence::{Enough, Evidence, Few};

/// What it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
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
pub(crate) struct Finding {
    /// What it looks like.
    pub(crate) kind: Kind,
    /// The same for people.
    pub(crate) sentence: String,
    /// The numbers behind it.
    pub(crate) evidence: Evidence,
}

/// Fewer denials may be chance.
const ENOUGH_DENIALS: u64 = 20;
/// From this share of keys on, a limit affects clients in general rather than some.
const EVERYBODY: f64 = 0.2;
/// If at least this share of the denied keys behaves in one way, they all count as such; at most half is the
/// opposite.
const MOST: f64 = 0.8;
const HALF: f64 = 0.5;
/// If the limit would have to be raised by more than this factor, it is not just set too low.
const FAR_ABOVE: f64 = 4.0;

impl Finding {
    /// Judges the evidence.
    pub(crate) fn of(evidence: Evidence) -> Finding {
        let (kind, sentence) = evidence.judge();
        let sentence = sentence + &evidence.besides();
        Finding { kind, sentence, evidence }
    }
}

impl Evidence {
    fn judge(&self) -> (Kind, String) {
        let last = format!("in the last {}", self.horizon());
        if self.requests == 0 {
            return (Kind::NotEnoughData, format!("no request {last}"));
        }
        if self.denied == 0 && self.blocked > 0 {
            let requests = counted(self.requests - self.blocked.min(self.requests), "request");
            return (
                Kind::Quiet,
                format!("the limit denied nobody {last}: {requests} by {}", counted(self.keys, "key")),
            );
        }
        if self.denied == 0 {
            let (requests, keys) = (counted(self.requests, "request"), counted(self.keys, "key"));
            return (Kind::Quiet, format!("nobody was denied {last}: {requests} by {keys}"));
        }
        if self.denied < ENOUGH_DENIALS {
            let denials = counted(self.denied, self.denial());
            return (Kind::NotEnoughData, format!("{denials} {last}: too few to tell"));
        }
        let share = self.of_keys(self.share_of_keys_denied);
        let hammering = self.share_hammering.filter(|_| !self.shadow).unwrap_or(0.0);
        match self.few {
            _ if self.one_key => self.shared_by_all(&last),
            Some(few) if self.is_concentrated(few) => self.caused_by_few(few),
            _ if hammering >= MOST => self.many_hammer(hammering, &last),
            _ if self.affects_everybody() && hammering <= HALF => {
                let (denied, waiting) = (self.were_denied(), self.waiting());
                (
                    Kind::TooLow,
                    format!("{share} of all keys {denied} {last}{waiting}: the limit looks too low{}", self.would_do()),
                )
            }
            _ => {
                let keys = format!("{share} of all keys {} {last}{}", self.were_denied(), self.waiting());
                (Kind::Mixed, format!("{keys}: neither a few keys nor all of them{}", self.would_do()))
            }
        }
    }

    /// `; 120 requests of blocked keys were denied in addition`.
    fn besides(&self) -> String {
        if self.blocked == 0 {
            return String::new();
        }
        let was = if self.blocked == 1 { "was" } else { "were" };
        let denied = if self.shadow { "would have been denied".into() } else { format!("{was} denied") };
        format!("; {} of blocked keys {denied} in addition", counted(self.blocked, "request"))
    }

    /// Whether a few keys stand out, rather than being all that were denied.
    fn is_concentrated(&self, few: Few) -> bool {
        !self.affects_everybody() || self.keys_denied <= 3 || few.keys * 2 <= self.keys_denied
    }

    fn affects_everybody(&self) -> bool {
        self.share_of_keys_denied >= EVERYBODY
    }

    fn shared_by_all(&self, last: &str) -> (Kind, String) {
        let share = percent(self.denied as f64 / self.requests as f64);
        let sentence = format!(
            "{share} of requests {} {last}, and all share one key: a rule with a key per client would show who{}",
            self.were_denied(),
            self.enough
                .as_ref()
                .map(|enough| format!("; {} would have denied nobody", enough.limit))
                .unwrap_or_default()
        );
        (Kind::Mixed, sentence)
    }

    fn caused_by_few(&self, few: Few) -> (Kind, String) {
        let one = few.keys == 1;
        let theirs = format!("{} of {}s come from {}", percent(few.share), self.denial(), counted(few.keys, "key"));
        if self.shadow {
            return (Kind::Mixed, format!("{theirs}: if enforced, the rule would stop little else"));
        }
        match few.hammering.cmp(&few.waiting) {
            Ordering::Greater => {
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
            Ordering::Equal => (Kind::Mixed, format!("{theirs}, half of which retry without waiting: look at each")),
        }
    }

    fn many_hammer(&self, hammering: f64, last: &str) -> (Kind, String) {
        let share = self.of_keys(self.share_of_keys_denied);
        let keys = if self.affects_everybody() {
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
        let waiting = self.share_hammering.filter(|share| !self.shadow && *share < HALF).map(|share| 1.0 - share);
        waiting.map(|share| format!(", and {} of those wait before retrying", self.of_keys(share))).unwrap_or_default()
    }

    /// `; 120/min would have denied 1 %`.
    fn would_do(&self) -> String {
        let Some(Enough { limit, share_of_keys_denied, .. }) = &self.enough else { return String::new() };
        let nobody = *share_of_keys_denied == 0.0 && self.exact;
        let whom = if nobody { "nobody".into() } else { self.of_keys(*share_of_keys_denied) };
        format!("; {limit} would have denied {whom}")
    }

    /// A share of keys; from a sample, neither all nor none is claimed.
    fn of_keys(&self, share: f64) -> String {
        percent(if self.exact { share } else { share.clamp(0.001, 0.999) })
    }

    fn denial(&self) -> &'static str {
        if self.shadow { "would-be denial" } else { "denial" }
    }

    fn were_denied(&self) -> &'static str {
        if self.shadow { "would have been denied" } else { "were denied" }
    }

    /// `hour`, `47 minutes`, `20 seconds`.
    fn horizon(&self) -> String {
        match self.seconds {
            3_570.. => "hour".to_string(),
            0..120 => counted(self.seconds.max(1), "second"),
            seconds => counted((seconds + 30) / 60, "minute"),
        }
    }
}

fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Whole percent. 100 % and 0 % mean exactly that.
fn percent(share: f64) -> String {
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
}
