//! A rule's fields by name, as serde writes them: this code need not know which fields exist.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use tollkeeper_core::RuleSpec;

/// The fields of a rule that differ from the default, in the order of [`RuleSpec`], and always the name.
pub fn fields(spec: &RuleSpec) -> Vec<(String, Value)> {
    let usual = serde_json::to_value(RuleSpec::default()).expect("a rule is always JSON");
    // As text first: a map of values would sort the names.
    let text = serde_json::to_string(spec).expect("a rule is always JSON");
    let InOrder(fields) = serde_json::from_str(&text).expect("this was JSON just now");
    fields.into_iter().filter(|(name, value)| usual[name] != *value || name == "name").collect()
}

struct InOrder(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for InOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrderVisitor)
    }
}

struct InOrderVisitor;

impl<'de> Visitor<'de> for InOrderVisitor {
    type Value = InOrder;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InOrder, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(InOrder(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_as_usual_are_left_out_and_the_others_keep_their_order() {
        let spec = RuleSpec { burst: Some(5.into()), active: false, ..RuleSpec::default().limit("10/s") };
        let names: Vec<String> = fields(&spec).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["name", "limit", "burst", "active"]);
    }
}
