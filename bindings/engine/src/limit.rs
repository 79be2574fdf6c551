//! A limit in one line, such as `100/min burst 20 by header.x-api-key|ip`, with the errors of the bindings.

use tollkeeper::{LimitError, Quota, QuotaError, RuleSpec, Shorthand};

use crate::error::{Error, Kind};

/// The quota of a text such as `10/s burst 20`.
pub fn quota(text: &str) -> Result<Quota, Error> {
    text.parse().map_err(|error: QuotaError| Error::new(Kind::Rule, error.to_string()))
}

/// The rule of a text. `by` is for callers that pass it separately; by default it is the client's address.
pub fn rule(name: &str, text: &str, by: Option<&str>) -> Result<RuleSpec, Error> {
    let wrong = |problem: LimitError| Error::new(Kind::Rule, format!("{text:?}: {problem}"));
    let shorthand: Shorthand = text.parse().map_err(wrong)?;
    let shorthand = match by {
        Some(by) => shorthand.keyed_by(by).map_err(wrong)?,
        None => shorthand,
    };
    Ok(shorthand.rule(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_rule() {
        assert_eq!(quota("10/s burst 20").unwrap().to_string(), "10/s burst 20 token_bucket");
        let either = rule("api", "100/min by header.x-api-key|ip", None).unwrap();
        assert_eq!(either.key, "{header.x-api-key|ip}");
        assert_eq!(rule("api", "100/min", Some("user_id")).unwrap().key, "{user_id}");
        let twice = rule("api", "100/min by ip", Some("user_id")).unwrap_err().to_string();
        assert_eq!(twice, "\"100/min by ip\": by: is given twice; keep one");
        assert!(quota("ten/s").unwrap_err().to_string().contains("not a whole number"));
    }
}
