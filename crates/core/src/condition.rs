//! One condition of a rule: an attribute and what it may be.

use std::collections::BTreeSet;

use crate::pattern::Pattern;
use crate::request::{Request, usual_spelling};
use crate::rule_spec::{MatchValue, OneOrMany};

/// One attribute and what it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    attribute: String,
    /// Any of these,
    patterns: Vec<Pattern>,
    /// and none of these.
    except: Vec<Pattern>,
    /// Or it is missing.
    may_lack: bool,
}

impl Condition {
    pub(crate) fn new(attribute: &str, value: &OneOrMany) -> Result<Condition, String> {
        let values = match value {
            OneOrMany::One(value) => std::slice::from_ref(value),
            OneOrMany::Many(values) => values,
        };
        if values.is_empty() {
            return Err("an empty list matches nothing; name a value, or remove the condition".into());
        }
        let may_lack = values.contains(&MatchValue::Absent);
        let texts: Vec<String> =
            values.iter().filter_map(MatchValue::to_text).map(|text| spelled(attribute, text)).collect();
        let (except, wanted): (Vec<&String>, Vec<&String>) = texts.iter().partition(|text| text.starts_with('!'));
        // Only exclusions: any other value matches.
        let anything = (wanted.is_empty() && !except.is_empty()).then(Pattern::anything);
        let wanted: Result<Vec<Pattern>, String> = wanted.into_iter().map(|text| Pattern::new(text)).collect();
        let patterns: Vec<Pattern> = wanted?.into_iter().chain(anything).collect();
        let except: Vec<Pattern> = except.into_iter().map(|text| Pattern::new(&text[1..])).collect::<Result<_, _>>()?;
        if except.iter().any(Pattern::is_anything) {
            return Err("\"!*\" excludes every value; write null for a request without this attribute".into());
        }
        let named = |pattern: &Pattern| pattern.names().map(str::to_string).collect::<BTreeSet<_>>();
        let names: BTreeSet<_> = patterns.iter().map(named).chain(may_lack.then(BTreeSet::new)).collect();
        if names.len() > 1 {
            return Err(
                "the patterns in this list name different segments, so a key cannot rely on them; name the same \
                 segments in each, or write a rule for each"
                    .into(),
            );
        }
        Ok(Condition { attribute: attribute.to_string(), patterns, except, may_lack })
    }

    /// The attribute's name.
    #[inline]
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// The value must match one of these.
    #[inline]
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The value must match none of these.
    #[inline]
    pub fn except(&self) -> &[Pattern] {
        &self.except
    }

    /// Whether a request without the attribute meets it.
    #[inline]
    pub fn may_lack(&self) -> bool {
        self.may_lack
    }

    /// Whether a request meets it. An empty value counts as missing, as it does in keys: otherwise an empty header would
    /// escape both the rule for requests with it and the rule for requests without it.
    pub fn holds(&self, request: &impl Request) -> bool {
        let Some(value) = request.attribute(&self.attribute) else { return self.may_lack };
        (self.may_lack && value.is_empty() && !request.keeps_empty()) || self.admits(&value)
    }

    fn admits(&self, value: &str) -> bool {
        let fits = |pattern: &Pattern| pattern.matches(value);
        self.patterns.iter().any(fits) && !self.except.iter().any(fits)
    }

    /// The segments that every match names: all patterns name the same.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.patterns.first().into_iter().flat_map(Pattern::names)
    }

    /// The segments that only exclusions name: no match has them.
    pub(crate) fn excluded_names(&self) -> impl Iterator<Item = &str> {
        self.except.iter().flat_map(Pattern::names)
    }

    /// The named segments of a matching value.
    pub(crate) fn captures<'v>(&self, value: &'v str) -> Vec<(&str, &'v str)> {
        self.patterns.iter().find_map(|pattern| pattern.captures(value)).unwrap_or_default()
    }
}

/// An address as requests have it, however it is written.
fn spelled(attribute: &str, text: String) -> String {
    let (sign, address) = text.strip_prefix('!').map_or(("", text.as_str()), |rest| ("!", rest));
    format!("{sign}{}", usual_spelling(attribute, address))
}
