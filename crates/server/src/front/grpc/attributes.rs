//! The attributes of one descriptor: its entries by name, `domain`, and `descriptor`, the names of the entries in order, with which
//! a rule can require exactly this shape. A repeated name gets a number: the second `generic_key` is `generic_key#2`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Status;

use super::envoy::Entry;

/// More than any proxy sends.
const MAX_ENTRIES: usize = 100;

const DOMAIN: &str = "domain";
const SHAPE: &str = "descriptor";

/// The attributes of one descriptor.
#[derive(Debug)]
pub(super) struct Attributes {
    domain: Arc<str>,
    shape: String,
    /// Sorted by name, so that a lookup is cheap however many were sent, and no map has to be built for a call.
    entries: Vec<(String, String)>,
}

impl Attributes {
    /// From the entries of the descriptor at this position.
    pub(super) fn new(domain: Arc<str>, entries: Vec<Entry>, index: usize) -> Result<Attributes, Status> {
        let field = |rest: &str| format!("descriptors[{index}].entries{rest}");
        if entries.len() > MAX_ENTRIES {
            return Err(invalid(&field(""), format!("{} are too many (at most {MAX_ENTRIES})", entries.len())));
        }
        let mut shape = String::with_capacity(entries.iter().map(|entry| entry.key.len() + 1).sum());
        for (position, Entry { key, .. }) in entries.iter().enumerate() {
            if key.is_empty() {
                return Err(invalid(&field(&format!("[{position}].key")), "is empty; every entry has a name"));
            }
            if position > 0 {
                shape.push(',');
            }
            shape.push_str(key);
        }
        let mut attributes = Attributes { domain, shape, entries: Vec::with_capacity(entries.len()) };
        entries.into_iter().for_each(|Entry { key, value }| attributes.insert(key, value));
        Ok(attributes)
    }

    fn insert(&mut self, key: String, value: String) {
        let mut name = key;
        let mut number = 1;
        let place = loop {
            match self.find(&name) {
                Err(place) if name != DOMAIN && name != SHAPE => break place,
                _ => {
                    let end = if number == 1 { name.len() } else { name.rfind('#').unwrap_or(name.len()) };
                    number += 1;
                    name.truncate(end);
                    name.push_str(&format!("#{number}"));
                }
            }
        };
        self.entries.insert(place, (name, value));
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(other, _)| other.as_str().cmp(name))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        match name {
            DOMAIN => Some(&self.domain),
            SHAPE => Some(&self.shape),
            name => Some(&self.entries[self.find(name).ok()?].1),
        }
    }

    /// All of them as JSON, in the order of their names: no two descriptors are the same text.
    pub(super) fn to_json(&self) -> String {
        let named = self.entries.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: BTreeMap<&str, &str> = named.chain([(DOMAIN, &*self.domain), (SHAPE, &self.shape)]).collect();
        serde_json::to_string(&all).expect("a map of texts is always JSON")
    }
}

pub(super) fn invalid(field: &str, problem: impl AsRef<str>) -> Status {
    Status::invalid_argument(format!("{field}: {}", problem.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(entries: &[(&str, &str)]) -> Attributes {
        let entries = entries.iter().map(|(key, value)| Entry { key: key.to_string(), value: value.to_string() });
        Attributes::new("shop".into(), entries.collect(), 0).expect("valid")
    }

    #[test]
    fn repeated_names_are_numbered_and_ours_are_never_replaced() {
        let all = attributes(&[("b", "1"), ("a", "2"), ("b", "3"), ("domain", "4"), ("descriptor", "5"), ("b", "6")]);
        for (name, value) in
            [("b", "1"), ("a", "2"), ("b#2", "3"), ("domain#2", "4"), ("descriptor#2", "5"), ("b#3", "6")]
        {
            assert_eq!(all.get(name), Some(value), "{name}");
        }
        assert_eq!(all.get("domain"), Some("shop"));
        assert_eq!(all.get("descriptor"), Some("b,a,b,domain,descriptor,b"));
        assert_eq!(all.get("c"), None);
        let json = attributes(&[("b", "1"), ("a", "2")]).to_json();
        assert_eq!(json, r#"{"a":"2","b":"1","descriptor":"b,a","domain":"shop"}"#);
    }

    #[test]
    fn a_name_that_looks_numbered_keeps_its_own() {
        let all = attributes(&[("b#2", "1"), ("b", "2"), ("b", "3"), ("b#2", "4")]);
        assert_eq!(
            ["b", "b#2", "b#3", "b#2#2"].map(|name| all.get(name)),
            [Some("2"), Some("1"), Some("3"), Some("4")]
        );
    }
}
