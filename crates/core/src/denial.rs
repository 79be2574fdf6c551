//! A rule's own response to the requests it denies.

use std::fmt::Write as _;

use crate::rule_spec::DenySpec;
use crate::time::Span;

/// The response to a denied HTTP request, as far as the rule customizes it. Limit headers and `Retry-After` stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    status: Option<u16>,
    body: Option<(String, Template)>,
}

impl Denial {
    /// Instead of the service's status.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// The type and text of the body, if not the problem document.
    pub fn body(&self) -> Option<(&str, &Template)> {
        self.body.as_ref().map(|(content_type, template)| (content_type.as_str(), template))
    }
}

/// A text with placeholders for the facts of a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// The facts of a denial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'f> {
    pub(crate) rule: &'f str,
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// `None` when it never passes.
    pub(crate) retry_after: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Place(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Rule,
    Limit,
    Remaining,
    RetryAfter,
    RetryAfterMs,
}

const PLACES: [(&str, Place); 5] = [
    ("rule", Place::Rule),
    ("limit", Place::Limit),
    ("remaining", Place::Remaining),
    ("retry_after", Place::RetryAfter),
    ("retry_after_ms", Place::RetryAfterMs),
];

impl Denial {
    /// Checks the spec, or says which field is wrong and why.
    pub fn new(spec: &DenySpec) -> Result<Denial, (&'static str, String)> {
        if let Some(status) = spec.status
            && !(400..=599).contains(&status)
        {
            let problem = format!(
                "{status} is not an error status, so clients would not see the denial; use 429, or another 4xx or 5xx"
            );
            return Err(("status", problem));
        }
        let content_type = spec.content_type.as_deref().unwrap_or("text/plain; charset=utf-8");
        let is_type = content_type.contains('/') && content_type.bytes().all(|byte| (0x20..0x7F).contains(&byte));
        if !is_type {
            return Err(("content_type", format!("{content_type:?} is not a media type; write for example text/html")));
        }
        if spec.content_type.is_some() && spec.body.is_none() {
            return Err(("content_type", "has no effect without a body; add `body`, or remove it".into()));
        }
        let body = spec.body.as_deref().map(Template::new).transpose().map_err(|problem| ("body", problem))?;
        Ok(Denial { status: spec.status, body: body.map(|body| (content_type.to_string(), body)) })
    }
}

impl Template {
    fn new(text: &str) -> Result<Template, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after
                .split_once('}')
                .ok_or_else(|| format!("`${{{after}` is never closed; write for example ${{rule}}"))?;
            let place = PLACES.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let known: Vec<String> = PLACES.iter().map(|(known, _)| format!("${{{known}}}")).collect();
                format!("${{{name}}} is not known; use {}", known.join(", "))
            })?;
            parts.extend([Part::Text(before.to_string()), Part::Place(place.1)]);
            rest = after;
        }
        parts.push(Part::Text(rest.to_string()));
        Ok(Template(parts))
    }

    /// The text with these facts filled in. A wait that never ends is written as -1.
    pub(crate) fn text(&self, facts: &Facts<'_>) -> String {
        let Facts { rule, limit, remaining, retry_after } = *facts;
        let wait = |in_unit: fn(Span) -> u64| retry_after.map_or(-1, |wait| in_unit(wait) as i64);
        let mut text = String::new();
        for part in &self.0 {
            let number = match part {
                Part::Text(part) => {
                    text.push_str(part);
                    continue;
                }
                Part::Place(Place::Rule) => {
                    text.push_str(rule);
                    continue;
                }
                Part::Place(Place::Limit) => i64::from(limit),
                Part::Place(Place::Remaining) => i64::from(remaining),
                Part::Place(Place::RetryAfter) => wait(Span::as_secs_ceil),
                Part::Place(Place::RetryAfterMs) => wait(Span::as_millis_ceil),
            };
            // Writing to a string cannot fail.
            let _ = write!(text, "{number}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(spec: DenySpec) -> (&'static str, String) {
        Denial::new(&spec).expect_err("wrong")
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(problem(DenySpec { status: Some(200), ..DenySpec::default() }).0, "status");
        let html = || Some("text/html".to_string());
        assert_eq!(problem(DenySpec { content_type: html(), ..DenySpec::default() }).0, "content_type");
        let bad_type = DenySpec { content_type: Some("html\n".into()), body: Some("x".into()), ..DenySpec::default() };
        assert_eq!(problem(bad_type).0, "content_type");
        for body in ["wait ${seconds}", "wait ${retry_after"] {
            let (field, problem) = problem(DenySpec { body: Some(body.into()), ..DenySpec::default() });
            assert!(field == "body" && problem.contains("${rule}"), "{problem}");
        }
    }

    #[test]
    fn braces_that_mean_nothing_stay() {
        let template = Template::new(r#"{"error": "slow down", "wait": ${retry_after}}"#).expect("valid");
        assert_eq!(template.0.len(), 3);
    }
}
