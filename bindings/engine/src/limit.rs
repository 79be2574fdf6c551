//! `100/min burst 20 by header.x-api-key|ip algorithm gcra`: a rule in a line, as `tollkeeper proxy --limit` reads it.

use tollkeeper::{Algorithm, Policy, Quota, RuleSpec};

use crate::error::{Error, Kind};

const PARTS: [&str; 4] = ["burst", "by", "algorithm", "hold"];

/// The quota that a text such as `10/s burst 20` means.
pub fn quota(text: &str) -> Result<Quota, Error> {
    let spec = rule("limit", text, Some("global"))?;
    let policy = Policy::new([spec]).map_err(|errors| Error::new(Kind::Rule, in_short(text, &errors)))?;
    Ok(*policy.rules()[0].quota())
}

/// The rule that a text means. `by` overrules what the text says, and the client's address what nobody says.
pub fn rule(name: &str, text: &str, by: Option<&str>) -> Result<RuleSpec, Error> {
    let wrong = |problem: String| Error::new(Kind::Rule, format!("{text:?}: {problem}"));
    // The limit may be written with spaces, as in `6,000 / min`.
    let joined = text.split('/').map(str::trim).collect::<Vec<_>>().join("/");
    let mut words = joined.split_whitespace().peekable();
    let limit = words.next_if(|word| !PARTS.contains(word));
    let limit = limit.ok_or_else(|| wrong("it begins with no limit; write for example 100/min burst 20".into()))?;
    let mut spec = serde_json::json!({ "name": name, "limit": limit, "key": key(by.unwrap_or("ip")).map_err(wrong)? });
    let mut seen: Vec<&str> = Vec::new();
    while let Some(part) = words.next() {
        if !PARTS.contains(&part) {
            return Err(wrong(format!(
                "burst, by, algorithm and hold may follow a limit, and {part:?} is none of them"
            )));
        }
        let value = words.next_if(|word| !PARTS.contains(word));
        let value = value.ok_or_else(|| wrong(format!("{part}: nothing follows it")))?;
        if seen.contains(&part) {
            return Err(wrong(format!("{part}: is there twice; keep one")));
        }
        seen.push(part);
        match part {
            "by" if by.is_some() => return Err(wrong("by: is said beside it too; keep one".into())),
            "by" => spec["key"] = key(value).map_err(wrong)?.into(),
            "algorithm" => spec["algorithm"] = algorithm(value).map_err(wrong)?.into(),
            part => spec[part] = value.into(),
        }
    }
    serde_json::from_value(spec).map_err(|error| wrong(error.to_string()))
}

/// `header.x-api-key|ip` as a key template.
fn key(by: &str) -> Result<String, String> {
    if by == "global" {
        return Ok(by.into());
    }
    if by.split('|').any(str::is_empty) {
        return Err(format!("by {by:?}: an alternative is empty; write for example header.x-api-key|ip"));
    }
    Ok(format!("{{{by}}}"))
}

fn algorithm(name: &str) -> Result<&str, String> {
    let names: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    if names.contains(&name) {
        return Ok(name);
    }
    Err(format!("algorithm: there is no {name:?}; possible are {}", names.join(", ")))
}

/// What is wrong with the only rule, without the name that nobody gave it.
fn in_short(text: &str, errors: &tollkeeper::PolicyErrors) -> String {
    let problems: Vec<String> = errors.iter().map(|error| error.error.to_string()).collect();
    format!("{text:?}: {}", problems.join("; "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_rule() {
        assert_eq!(quota("10/s burst 20").unwrap().to_string(), "10/s burst 20 token_bucket");
        assert_eq!(quota("6,000 / min algorithm fixed_window").unwrap().to_string(), "6000/min fixed_window");
        let rule = rule("api", "100/min by header.x-api-key|ip", None).unwrap();
        assert_eq!(rule.key, "{header.x-api-key|ip}");
    }

    #[test]
    fn errors_name_the_part() {
        let error = |text: &str| quota(text).unwrap_err().to_string();
        assert!(error("").contains("begins with no limit"));
        assert!(error("10/s bust 20").contains("\"bust\" is none of them"));
        assert!(error("10/s burst").contains("burst: nothing follows"));
        assert!(error("ten/s").contains("not a whole number"), "{}", error("ten/s"));
        assert!(error("10/s algorithm leaky").contains("there is no \"leaky\""));
    }
}
