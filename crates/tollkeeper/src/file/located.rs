//! YAML as a tree that remembers where each value is, so that any later error can point at its line.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::repair::{self, Repair, Repaired};
use crate::strict::explain;

/// A document whose values know their places.
#[derive(Debug)]
pub(super) struct Located {
    value: Value,
    places: Places,
}

/// The most problems that are looked for in one file.
const MOST_PROBLEMS: usize = 50;

/// Line and column, counted from 1.
pub(super) type Place = (u64, u64);

/// The places of values, by path: `rules[0].limit`.
#[derive(Debug, Default)]
struct Places {
    values: BTreeMap<String, Place>,
    names: BTreeMap<String, Place>,
}

/// Why a document cannot be read into a type.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) field: String,
    pub(super) message: String,
    pub(super) place: Option<Place>,
}

impl Places {
    /// A field is read under another name from now on.
    fn rename(&mut self, from: &str, to: &str) {
        for places in [&mut self.values, &mut self.names] {
            if let Some(place) = places.get(from).copied() {
                places.insert(to.to_string(), place);
            }
        }
    }
}

impl Located {
    /// Parses YAML (and so JSON). An error has a place if the parser knows one.
    pub(super) fn parse(text: &str) -> Result<Located, (Option<Place>, String)> {
        if text.trim().is_empty() {
            return Ok(Located { value: Value::Object(serde_json::Map::new()), places: Places::default() });
        }
        let root: Spanned<Node> = serde_saphyr::from_str(text).map_err(|error| {
            let place = error.location().map(|location| (location.line(), location.column()));
            (place, plain(error.without_snippet()))
        })?;
        let mut places = Places::default();
        let mut value = value_of(root, text, String::new(), &mut places);
        // Holders of anchors, as in other programs' files: `x-defaults: &defaults { ... }`.
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| !name.starts_with("x-"));
        }
        Ok(Located { value, places })
    }

    /// Reads the document into a type, as far as it can be read; and everything that cannot be. Reading starts over after
    /// each problem, without the value that caused it.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> (Option<T>, Vec<Unreadable>) {
        let (mut problems, mut repair) = (Vec::new(), Repair::default());
        loop {
            let error = match serde_path_to_error::deserialize(self.value.clone()) {
                Ok(_) if repair.finish(&mut self.value) => continue,
                Ok(read) => return (Some(read), problems),
                Err(error) => error,
            };
            let (path, message) = (repair::steps(error.path()), error.inner().to_string());
            if !repair.has_caused(&path, &message) {
                problems.push(self.unreadable(error.path(), &message));
            }
            if problems.len() >= MOST_PROBLEMS {
                return (None, problems);
            }
            match repair.apply(&mut self.value, path, &message) {
                Repaired::Renamed { from, to } => self.places.rename(&from, &to),
                Repaired::Removed => {}
                Repaired::Not => return (None, problems),
            }
        }
    }

    fn unreadable(&self, path: &serde_path_to_error::Path, message: &str) -> Unreadable {
        let path = path.to_string();
        let field = if path == "." { String::new() } else { path };
        // For an unknown field, the error is at its name.
        let name = self.places.names.get(&field).filter(|_| message.starts_with("unknown field"));
        let place = name.copied().or_else(|| self.place_of(&field));
        let (member, mut message) = explain(message);
        // `key: {user_id}` is a map to YAML.
        if let Some(name) = self.value_at(&field).and_then(only_name) {
            message = format!("{message}; braces need quotes in YAML: write \"{{{name}}}\"");
        }
        let field = match member {
            Some(member) if field.is_empty() => member.to_string(),
            Some(member) => format!("{field}.{member}"),
            None => field,
        };
        Unreadable { field, message, place }
    }

    /// The document without these top-level fields.
    pub(super) fn without(mut self, names: &[&str]) -> Located {
        if let Value::Object(fields) = &mut self.value {
            fields.retain(|name, _| !names.contains(&name.as_str()));
        }
        self
    }

    fn value_at(&self, path: &str) -> Option<&Value> {
        let parts = path.split(['.', '[']).map(|part| part.trim_end_matches(']'));
        parts.filter(|part| !part.is_empty()).try_fold(&self.value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            other => other.get(part),
        })
    }

    /// Where a field is, or the nearest thing around it.
    pub(super) fn place_of(&self, path: &str) -> Option<Place> {
        let mut path = path;
        loop {
            let place = self.places.values.get(path).or_else(|| self.places.names.get(path));
            if let Some(place) = place {
                return Some(*place);
            }
            let end = path.rfind(['.', '['])?;
            path = &path[..end];
        }
    }
}

/// The only name in a map without a value, as in `{user_id}`.
fn only_name(value: &Value) -> Option<&str> {
    let mut fields = value.as_object().filter(|fields| fields.len() == 1)?.iter();
    fields.next().filter(|(_, value)| value.is_null()).map(|(name, _)| name.as_str())
}

/// The parser's error, rephrased if its own text is for programmers.
fn plain(error: &serde_saphyr::Error) -> String {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            let name = key.as_ref().map(|key| format!(" `{key}`")).unwrap_or_default();
            format!("the field{name} is given twice; keep one")
        }
        serde_saphyr::Error::MultipleDocuments { .. } => "there is a second document after `---`; keep one".to_string(),
        serde_saphyr::Error::Budget { .. } => "is nested or repeated too deeply for a configuration".to_string(),
        other => {
            let text = other.to_string();
            let first = text.lines().next().unwrap_or_default();
            let message = first.split(" at line ").next().unwrap_or(first);
            message.trim_start_matches("error: ").trim_end_matches(':').to_string()
        }
    }
}

/// Any YAML value.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

/// A value of which an alias may stand in the document: its place is where the alias is, and its text where the anchor is.
fn value_of(node: Spanned<Node>, text: &str, path: String, places: &mut Places) -> Value {
    let location = node.referenced;
    let value = match node.value {
        Node::Scalar(value) => as_written(value, text, node.defined),
        Node::List(items) => {
            let items = items.into_iter().enumerate();
            Value::Array(items.map(|(index, item)| value_of(item, text, format!("{path}[{index}]"), places)).collect())
        }
        Node::Map(fields) => {
            let mut object = serde_json::Map::new();
            for (name, field) in fields {
                let path = if path.is_empty() { name.value.clone() } else { format!("{path}.{}", name.value) };
                // An empty value has no place of its own, but its name has.
                places.names.insert(path.clone(), (name.referenced.line(), name.referenced.column()));
                object.insert(name.value, value_of(field, text, path, places));
            }
            Value::Object(object)
        }
    };
    if location.line() > 0 && value != Value::Null {
        places.values.insert(path, (location.line(), location.column()));
    }
    value
}

/// A number or boolean stays one only if it is written in the usual way. Otherwise YAML's guess would lose what was
/// written: the country `NO` is not `false`, and the version `1.10` is not `1.1`.
fn as_written(value: Value, text: &str, location: Location) -> Value {
    let span = location.span();
    let written = span
        .byte_offset()
        .zip(span.byte_len())
        .and_then(|(start, length)| text.get(start as usize..(start + length) as usize).map(str::trim));
    let plainly = value.to_string();
    match (&value, written) {
        (Value::Bool(_) | Value::Number(_), Some(written)) if !written.is_empty() && written != plainly => {
            written.into()
        }
        _ => value,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields: Vec<(Spanned<String>, Spanned<Node>)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<Spanned<String>, Spanned<Node>>()? {
            if fields.iter().any(|(other, _)| other.value == name.value) {
                return Err(A::Error::custom(format!("the field `{}` is given twice", name.value)));
            }
            fields.push((name, value));
        }
        Ok(Node::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Located;

    fn value(text: &str) -> Value {
        Located::parse(text).expect(text).value
    }

    /// `cost: *c` was read as an attribute named `*c`, so the second rule cost 1; `burst: *b` was an error.
    #[test]
    fn an_alias_is_what_its_anchor_is() {
        let text = "
a: &a { cost: &c 3, burst: &b 20, active: &x false, limit: &l 5/s, when: &w { plan: free }, country: &n NO }
b: { cost: *c, burst: *b, active: *x, limit: *l, when: *w, country: *n }
c: { <<: *a, cost: 7 }
d: *a
e: [*c, *b]
";
        let a =
            json!({"cost": 3, "burst": 20, "active": false, "limit": "5/s", "when": {"plan": "free"}, "country": "NO"});
        let mut merged = a.clone();
        merged["cost"] = json!(7);
        assert_eq!(value(text), json!({"a": a, "b": a, "c": merged, "d": a, "e": [3, 20]}));
    }
}
