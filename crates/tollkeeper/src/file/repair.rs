//! What becomes of a document after a value in it could not be read, so that the rest can be: every problem of a file is
//! reported at once, and none that only follows from another.
//!
//! - A field whose name is nearly right is read under the right name.
//! - Another value that cannot be read is taken out, and so is a rule that lacks something. What remains of a rule says
//!   little about what was meant, so an empty place is kept for it, and it is not judged any further.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

use crate::strict::meant;

/// A step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    Item(usize),
}

/// What was taken out so far.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// Rules with fields that could not be read, and which.
    doubtful: BTreeMap<usize, Vec<String>>,
    /// Fields that were taken out: others are not renamed to them.
    taken: Vec<Vec<Step>>,
}

/// What was done to a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repaired {
    /// A field has another name now.
    Renamed { from: String, to: String },
    /// Something is gone.
    Removed,
    /// Nothing could be done.
    Not,
}

/// The steps to a value; those that are not in the document itself are left out.
pub(super) fn steps(path: &Path) -> Vec<Step> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Step::Item(*index)),
        Segment::Map { key } => Some(Step::Field(key.clone())),
        _ => None,
    };
    path.iter().map_while(step).collect()
}

impl Repair {
    /// Whether a problem is there only because of what was taken out.
    pub(super) fn has_caused(&self, path: &[Step], message: &str) -> bool {
        let taken_out = rule_of(path).and_then(|rule| self.doubtful.get(&rule));
        taken_out.is_some_and(|fields| fields.iter().any(|field| message == format!("missing field `{field}`")))
    }

    /// Makes the document readable at this place.
    pub(super) fn apply(&mut self, value: &mut Value, mut path: Vec<Step>, message: &str) -> Repaired {
        let rule = rule_of(&path);
        if let (Some(rule), true) = (rule, is_missing(message) || path.len() == 2) {
            return self.leave_out(value, rule);
        }
        if let (Some(Step::Field(name)), Some(right)) = (path.last().cloned(), meant(message))
            && let Some(Value::Object(fields)) = at(value, &path[..path.len() - 1])
            && !fields.contains_key(right)
            && !self.taken.contains(&sibling(&path, right))
            && let Some(moved) = fields.remove(&name)
        {
            fields.insert(right.to_string(), moved);
            let within = written(&path[..path.len() - 1]);
            return Repaired::Renamed { from: within.clone() + &name, to: within + right };
        }
        if let (Some(rule), Some(Step::Field(field)), false) = (rule, path.get(2), message.starts_with("unknown field"))
        {
            self.doubtful.entry(rule).or_default().push(field.clone());
        }
        // Items keep their numbers, so of a list with a bad one nothing is read.
        while let Some(last) = path.pop() {
            if let (Step::Field(name), Some(Value::Object(fields))) = (last, at(value, &path))
                && fields.remove(&name).is_some()
            {
                path.push(Step::Field(name));
                self.taken.push(path);
                return Repaired::Removed;
            }
        }
        Repaired::Not
    }

    /// The document can be read. True if doubtful rules were left out, so that it has to be read once more.
    pub(super) fn finish(&mut self, value: &mut Value) -> bool {
        let doubtful = std::mem::take(&mut self.doubtful);
        doubtful.keys().for_each(|rule| _ = self.leave_out(value, *rule));
        !doubtful.is_empty()
    }

    fn leave_out(&self, value: &mut Value, rule: usize) -> Repaired {
        let place = [Step::Field("rules".into()), Step::Item(rule)];
        match at(value, &place) {
            Some(place) => {
                *place = json!({ "name": format!("left-out-{rule}-of-this-file"), "key": "global", "limit": "1/s" });
                Repaired::Removed
            }
            None => Repaired::Not,
        }
    }
}

/// The field of another name beside one.
fn sibling(path: &[Step], name: &str) -> Vec<Step> {
    let mut other = path[..path.len() - 1].to_vec();
    other.push(Step::Field(name.to_string()));
    other
}

fn is_missing(message: &str) -> bool {
    message.starts_with("missing field")
}

/// Which rule a value belongs to.
fn rule_of(path: &[Step]) -> Option<usize> {
    match path {
        [Step::Field(rules), Step::Item(index), ..] if rules == "rules" => Some(*index),
        _ => None,
    }
}

fn at<'v>(value: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Item(index) => value.get_mut(index),
    })
}

/// `rules[0].`, to be followed by a name.
fn written(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text += name,
            Step::Field(name) => text += &format!(".{name}"),
            Step::Item(index) => text += &format!("[{index}]"),
        }
    }
    if text.is_empty() { text } else { text + "." }
}
