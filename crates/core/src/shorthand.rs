//! A rule in one line: `100/min burst 20 by header.x-api-key|ip algorithm gcra`.
//!
//! Command-line flags, middleware and bindings take limits in this form. [`Shorthand`] parses it for all of them.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::limit::LimitError;
use crate::quota::{Algorithm, Quota, QuotaError};
use crate::rule::Rule;
use crate::rule_spec::{RuleSpec, Scalar};

const PARTS: [&str; 6] = ["burst", "by", "algorithm", "hold", "timezone", "anchor_day"];

/// A limit in one line: `LIMIT [burst N] [by KEY[|KEY...]] [algorithm NAME] [hold TIME] [timezone ZONE] [anchor_day
/// DAY]`, the parts in any order.
///
/// ```
/// use tollkeeper_core::Shorthand;
///
/// let shorthand: Shorthand = "100/min burst 20 by header.x-api-key|ip".parse()?;
/// let rule = shorthand.rule("per-client").build()?;
/// assert_eq!(rule.spec().key, "{header.x-api-key|ip}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Shorthand {
    limit: String,
    burst: Option<String>,
    by: Option<Vec<String>>,
    algorithm: Algorithm,
    hold: Option<String>,
    timezone: Option<String>,
    anchor_day: Option<u32>,
}

impl FromStr for Shorthand {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Shorthand, LimitError> {
        // The limit may be written with spaces, as in `6,000 / min`.
        let text = text.split('/').map(str::trim).collect::<Vec<_>>().join("/");
        let mut words = text.split_whitespace().peekable();
        let limit = words.next_if(|word| !PARTS.contains(word));
        let limit =
            limit.ok_or_else(|| LimitError::new("does not start with a limit; write for example 100/min burst 20"))?;
        if limit.split_once('/').is_some_and(|(_, period)| period.contains([';', ','])) {
            let problem = "contains several limits; pass a list of strings, such as [\"10/min\", \"100/h\"]";
            return Err(LimitError::new(format!("{limit:?}: {problem}")));
        }
        let mut parts: BTreeMap<&str, &str> = BTreeMap::new();
        while let Some(part) = words.next() {
            if !PARTS.contains(&part) {
                return Err(misplaced(part, limit));
            }
            let value = words.next_if(|word| !PARTS.contains(word));
            let value = value.ok_or_else(|| LimitError::new(format!("{part}: needs a value after it")))?;
            if parts.insert(part, value).is_some() {
                return Err(LimitError::new(format!("{part}: is given twice; keep one")));
            }
        }
        let shorthand = Shorthand {
            limit: limit.to_string(),
            burst: parts.get("burst").map(ToString::to_string),
            by: parts.get("by").map(|by| keys(by)).transpose()?,
            algorithm: parts.get("algorithm").map_or(Ok(Algorithm::default()), |name| algorithm(name))?,
            hold: parts.get("hold").map(ToString::to_string),
            timezone: parts.get("timezone").map(ToString::to_string),
            anchor_day: parts.get("anchor_day").map(|day| anchor_day(day)).transpose()?,
        };
        if shorthand.hold.is_some() && shorthand.algorithm != Algorithm::Concurrency {
            let problem = "hold: is for algorithm concurrency only; add `algorithm concurrency`, or remove hold";
            return Err(LimitError::new(problem));
        }
        Ok(shorthand)
    }
}

/// A word that cannot follow a limit. Some libraries write `5 per minute`, and `5/15 minutes`.
fn misplaced(word: &str, limit: &str) -> LimitError {
    let lacks_unit = limit.contains('/') && limit.ends_with(|last: char| last.is_ascii_digit());
    LimitError::new(match word {
        "per" => format!("{word:?}: write a slash before the unit, as in {limit}/min"),
        _ if lacks_unit => format!("{word:?}: write the unit without a space, as in {limit}min"),
        _ => format!("{word:?}: only burst, by, algorithm, hold, timezone and anchor_day may follow a limit"),
    })
}

/// The alternatives of a key; none for `global`.
fn keys(text: &str) -> Result<Vec<String>, LimitError> {
    if text == "global" {
        return Ok(Vec::new());
    }
    let keys: Vec<String> = text.split('|').map(str::to_string).collect();
    match keys.iter().any(String::is_empty) {
        true => {
            let problem = format!("by {text:?}: an alternative is empty; write for example header.x-api-key|ip");
            Err(LimitError::new(problem))
        }
        false => Ok(keys),
    }
}

fn anchor_day(text: &str) -> Result<u32, LimitError> {
    text.parse().map_err(|_| LimitError::new(format!("anchor_day: {text:?} is not the number of a day")))
}

fn algorithm(name: &str) -> Result<Algorithm, LimitError> {
    let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        LimitError::new(format!("algorithm: {name:?} is not one of {}", names.join(", ")))
    })
}

impl Shorthand {
    /// The attributes that `by` names: the first one that a request has names its bucket. `ip` by default, empty for
    /// `by global`.
    pub fn by(&self) -> Vec<&str> {
        match &self.by {
            Some(by) => by.iter().map(String::as_str).collect(),
            None => vec!["ip"],
        }
    }

    /// The same limit with a `by` such as `header.x-api-key|ip`; an error if the text already has one.
    pub fn keyed_by(self, by: &str) -> Result<Shorthand, LimitError> {
        match self.by {
            Some(_) => Err(LimitError::new("by: is given twice; keep one")),
            None => Ok(Shorthand { by: Some(keys(by)?), ..self }),
        }
    }

    /// The rule it describes, under this name.
    pub fn rule(&self, name: impl Into<String>) -> RuleSpec {
        let by = self.by();
        let key = if by.is_empty() { "global".into() } else { format!("{{{}}}", by.join("|")) };
        RuleSpec {
            key,
            limit: Scalar::Text(self.limit.clone()),
            burst: self.burst.clone().map(Scalar::Text),
            algorithm: self.algorithm,
            hold: self.hold.clone(),
            timezone: self.timezone.clone(),
            anchor_day: self.anchor_day,
            ..Rule::new(name)
        }
    }
}

/// `10/s burst 20`. A quota has no key, so `by` is refused.
impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Quota, QuotaError> {
        let unreadable = |problem: &str| QuotaError::Unreadable { problem: format!("{text:?}: {problem}") };
        let shorthand: Shorthand = text.parse().map_err(|error: LimitError| unreadable(&error.to_string()))?;
        if shorthand.by.is_some() {
            return Err(unreadable("by: a quota has no key; remove it, or write a rule"));
        }
        let rule = shorthand.rule("quota").build().map_err(|errors| {
            let problems: Vec<&str> = errors.iter().map(|error| error.problem.as_str()).collect();
            QuotaError::Unreadable { problem: problems.join("; ") }
        })?;
        Ok(*rule.quota())
    }
}

impl Quota {
    /// The quota as a one-line limit, which can be read again: `10/s burst 20 algorithm gcra`.
    pub fn to_shorthand(&self) -> String {
        let (count, period, algorithm) = (self.count(), self.period(), self.algorithm());
        match (algorithm, self.calendar()) {
            (Algorithm::Concurrency, _) => format!("{count} algorithm {algorithm} hold {period}"),
            (_, Some(calendar)) => format!("{count}/{} algorithm {algorithm}{calendar}", calendar.unit()),
            _ if algorithm.has_burst() => format!("{count}/{period} burst {} algorithm {algorithm}", self.limit()),
            _ => format!("{count}/{period} algorithm {algorithm}"),
        }
    }
}

impl TryFrom<&str> for Quota {
    type Error = QuotaError;

    fn try_from(text: &str) -> Result<Quota, QuotaError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> RuleSpec {
        text.parse::<Shorthand>().expect(text).rule("limit")
    }

    #[track_caller]
    fn error(text: &str) -> String {
        text.parse::<Shorthand>().expect_err(text).to_string()
    }

    #[test]
    fn parts_come_in_any_order() {
        let spec = rule("100/min burst 20 by header.x-api-key|ip algorithm gcra");
        assert_eq!((spec.limit, spec.burst), (Scalar::from("100/min"), Some(Scalar::from("20"))));
        assert_eq!((spec.key.as_str(), spec.algorithm), ("{header.x-api-key|ip}", Algorithm::Gcra));
        let spec = rule("3 algorithm concurrency hold 1h by global");
        assert_eq!((spec.limit, spec.key.as_str()), (Scalar::from("3"), "global"));
        assert_eq!(spec.hold.as_deref(), Some("1h"));
        assert_eq!(rule("6,000 / min").limit, Scalar::from("6,000/min"));
        assert_eq!(rule("10/s").key, "{ip}", "one bucket per client by default");
    }

    #[test]
    fn errors_name_the_part() {
        assert!(error("").contains("does not start with a limit"));
        assert!(error("by ip").contains("does not start with a limit"));
        assert!(error("10/s bust 20").contains("\"bust\": only burst, by, algorithm, hold"));
        // As slowapi, flask-limiter and limits write them: the answer was which words may follow a limit.
        assert!(error("5 per minute").contains("\"per\": write a slash before the unit, as in 5/min"));
        assert!(error("5/15 minutes").contains("\"minutes\": write the unit without a space, as in 5/15min"));
        for text in ["10/minute;100/hour", "10/minute; 100/hour", "10/min, 100/h"] {
            assert!(error(text).contains("contains several limits; pass a list of strings"), "{text}");
        }
        assert!(error("10/s burst").contains("burst: needs a value"));
        assert!(error("10/s burst by ip").contains("burst: needs a value"));
        assert!(error("10/s by ip by host").contains("by: is given twice"));
        assert!(error("10/s by a|").contains("an alternative is empty"));
        assert!(error("10/s algorithm leaky").contains("algorithm: \"leaky\" is not one of token_bucket"));
        assert!(error("10/s hold 1h").contains("hold: is for algorithm concurrency only"));
    }

    #[test]
    fn a_quota_reads_what_it_prints() {
        let month = "5/month algorithm fixed_window timezone Europe/Berlin anchor_day 15";
        let day = "5/day algorithm fixed_window timezone Asia/Kathmandu";
        let week = "5/7day algorithm fixed_window";
        let slots = "7 algorithm concurrency hold 30s";
        for text in ["10/s burst 20", "5/90s", "1/day burst 3", "20/1500us", slots, month, day, week] {
            let quota: Quota = text.parse().expect(text);
            let again = Rule::new("again").key("global").quota(quota).build().expect("valid");
            assert_eq!(*again.quota(), quota, "{text}");
            assert_eq!(quota.to_shorthand().parse(), Ok(quota), "{text}");
        }
        let error = |text: &str| text.parse::<Quota>().expect_err(text).to_string();
        assert_eq!(error("10"), r#""10" has no unit of time; write for example 10/s or 10/min"#);
        assert!(error("10/s by ip").contains("a quota has no key"));
        assert!(error("0/s").contains("would admit nothing"));
    }
}
