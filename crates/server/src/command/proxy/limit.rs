//! `--limit "100/min burst 20 by header.x-api-key|ip algorithm gcra"`: a rule in a line.

use std::collections::BTreeMap;

use tollkeeper::http::AttributeSource;
use tollkeeper::{Algorithm, RuleSpec};
use tollkeeper_core::Scalar;

use crate::strict::suggestion;
use crate::tls::CLIENT_ATTRIBUTE;

/// A limit as it was written, understood as far as it can be without knowing what `identify` maps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LimitFlag {
    limit: String,
    burst: Option<String>,
    /// Attributes, of which the first that a request has names its bucket; none for one bucket in all.
    by: Vec<String>,
    algorithm: Algorithm,
    /// How long a slot of `concurrency` is kept at most.
    hold: Option<String>,
}

const PARTS: [&str; 4] = ["burst", "by", "algorithm", "hold"];

/// Reads `N/unit [burst B] [by KEY[|KEY...]] [algorithm NAME] [hold TIME]`; what follows the limit may come in any order.
pub(super) fn parse_limit(text: &str) -> Result<LimitFlag, String> {
    // The limit may be written with spaces, as in `6,000 / min`.
    let text = text.split('/').map(str::trim).collect::<Vec<_>>().join("/");
    let mut words = text.split_whitespace().peekable();
    let limit = words.next_if(|word| !PARTS.contains(word));
    let limit = limit.ok_or("it begins with no limit; write for example 100/min burst 20 by ip")?;
    let mut parts: BTreeMap<&str, &str> = BTreeMap::new();
    while let Some(part) = words.next() {
        if !PARTS.contains(&part) {
            let hint = suggestion(part, &PARTS);
            return Err(format!(
                "burst, by, algorithm and hold may follow a limit, and {part:?} is none of them{hint}"
            ));
        }
        let value = words.next_if(|word| !PARTS.contains(word)).ok_or_else(|| format!("{part}: nothing follows it"))?;
        if parts.insert(part, value).is_some() {
            return Err(format!("{part}: is there twice; keep one"));
        }
    }
    Ok(LimitFlag {
        limit: limit.to_string(),
        burst: parts.get("burst").map(|burst| burst.to_string()),
        by: keys(parts.get("by").copied().unwrap_or("ip"))?,
        algorithm: parts.get("algorithm").map_or(Ok(Algorithm::default()), |name| algorithm(name))?,
        hold: parts.get("hold").map(|hold| hold.to_string()),
    })
}

fn keys(text: &str) -> Result<Vec<String>, String> {
    if text == "global" {
        return Ok(Vec::new());
    }
    let keys: Vec<String> = text.split('|').map(str::to_string).collect();
    match keys.iter().any(String::is_empty) {
        true => Err(format!("by {text:?}: an alternative is empty; write for example header.x-api-key|ip")),
        false => Ok(keys),
    }
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
    found.ok_or_else(|| format!("algorithm: there is no {name:?}{}", suggestion(name, &names)))
}

impl LimitFlag {
    /// Whether it applies to those alone who show a certificate.
    pub(super) fn is_by_certificate_alone(&self) -> bool {
        !self.by.is_empty() && self.by.iter().all(|key| key == CLIENT_ATTRIBUTE)
    }

    /// The rule that it means, under this name. `identified` are the attributes that the configuration maps.
    pub(super) fn rule(&self, name: String, identified: &BTreeMap<String, String>) -> Result<RuleSpec, String> {
        for key in &self.by {
            if key != CLIENT_ATTRIBUTE
                && !identified.contains_key(key)
                && let Err(problem) = key.parse::<AttributeSource>()
            {
                return Err(format!("by: {problem}, global for one bucket in all, or what `identify` maps"));
            }
        }
        let key = if self.by.is_empty() { "global".into() } else { format!("{{{}}}", self.by.join("|")) };
        if self.hold.is_some() && self.algorithm != Algorithm::Concurrency {
            return Err("hold: only slots of algorithm concurrency are held; add it, or remove hold".into());
        }
        Ok(RuleSpec {
            name,
            key,
            limit: Scalar::Text(self.limit.clone()),
            burst: self.burst.clone().map(Scalar::Text),
            algorithm: self.algorithm,
            hold: self.hold.clone(),
            ..RuleSpec::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> RuleSpec {
        parse_limit(text).and_then(|limit| limit.rule("limit".into(), &BTreeMap::new())).expect(text)
    }

    #[track_caller]
    fn error(text: &str) -> String {
        parse_limit(text).and_then(|limit| limit.rule("limit".into(), &BTreeMap::new())).expect_err(text)
    }

    #[test]
    fn every_part_is_understood_in_any_order() {
        let spec = rule("100/min burst 20 by header.x-api-key|ip algorithm gcra");
        assert_eq!((spec.limit, spec.burst), (Scalar::from("100/min"), Some(Scalar::from("20"))));
        assert_eq!((spec.key.as_str(), spec.algorithm), ("{header.x-api-key|ip}", Algorithm::Gcra));
        let spec = rule("3 algorithm concurrency hold 1h by global");
        assert_eq!((spec.limit, spec.key.as_str()), (Scalar::from("3"), "global"));
        assert_eq!(spec.hold.as_deref(), Some("1h"));
        assert_eq!(rule("6,000 / min").limit, Scalar::from("6,000/min"));
        assert_eq!(rule("10/s").key, "{ip}", "clients are told apart unless told otherwise");
    }

    #[test]
    fn names_that_the_configuration_maps_are_keys_too() {
        let mapped = BTreeMap::from([("user_id".to_string(), "header.x-user".to_string())]);
        let limit = parse_limit("10/s by user_id|ip").expect("read");
        assert_eq!(limit.rule("limit".into(), &mapped).expect("mapped").key, "{user_id|ip}");
        limit.rule("limit".into(), &BTreeMap::new()).expect_err("not mapped");
    }

    #[test]
    fn errors_name_the_part() {
        assert!(error("").contains("begins with no limit"));
        assert!(error("by ip").contains("begins with no limit"));
        assert!(error("10/s bust 20").contains("\"bust\""), "{}", error("10/s bust 20"));
        assert!(error("10/s burst").contains("burst: nothing follows"));
        assert!(error("10/s burst by ip").contains("burst: nothing follows"));
        assert!(error("10/s by ip by host").contains("by: is there twice"));
        assert!(error("10/s by header.").contains("by: \"header.\" is no place in a request"));
        assert!(error("10/s by a|").contains("an alternative is empty"));
        assert!(error("10/s algorithm leaky").contains("algorithm: there is no \"leaky\""));
        assert!(error("10/s hold 1h").contains("hold: only slots"));
        assert!(error("10/s burst 5 twice").contains("\"twice\" is none of them"));
    }
}
