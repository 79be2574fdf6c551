//! Reads what comes from outside: JSON bodies, query strings and columns of a table.
//!
//! A type says what it takes by deriving `Deserialize`; this module says what is wrong. Every mistake is named with its
//! place, its value and what to do. Unknown names, names given twice and values of another type are refused.

mod explain;
mod query;
mod similar;
mod tree;
mod value;

pub(crate) use explain::explain;
pub(crate) use query::query;
pub(crate) use similar::{nearest, suggestion};
pub(crate) use tree::Tree;
pub(crate) use value::{Filled, Note, Object, Whole, given, parsed};

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// The place, such as `checks[3].cost`; empty when it is the whole.
    pub(crate) field: String,
    /// What is wrong with it and what to do.
    pub(crate) problem: String,
}

impl Invalid {
    /// Something is wrong with a field.
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Invalid {
        Invalid { field: field.into(), problem: problem.into() }
    }

    /// Something is wrong with the whole.
    fn whole(problem: String) -> Invalid {
        Invalid::new("", problem)
    }

    /// Puts an error of serde into plain words. `hint` shows how the whole should look.
    fn explained(path: &Path, message: &str, hint: &str) -> Invalid {
        let (member, mut problem) = explain(message);
        let field = place(path, member);
        if !hint.is_empty() && (field.is_empty() || problem == explain::MISSING) {
            problem = format!("{problem}; {hint}");
        }
        Invalid { field, problem }
    }
}

impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}

/// Reads the JSON object of a body. The example is shown to those who send something else.
pub(crate) fn json<'b, T: Deserialize<'b>>(text: &'b [u8], example: &str) -> Result<T, Invalid> {
    let hint = format_args!("send for example {example}");
    if text.trim_ascii().is_empty() {
        return Err(Invalid::whole(format!("there is nothing here; {hint}")));
    }
    let error = match serde_json::from_slice::<Object<T>>(text) {
        Ok(Object(value)) => return Ok(value),
        Err(error) => error,
    };
    if !error.is_data() {
        return Err(Invalid::whole(format!("this is not JSON: {error}; {hint}")));
    }
    // Keeping track of the place costs time, so only what is wrong is read again to find it.
    let mut again = serde_json::Deserializer::from_slice(text);
    Err(match serde_path_to_error::deserialize::<_, Object<T>>(&mut again) {
        Err(found) => Invalid::explained(found.path(), &message(found.inner()), &hint.to_string()),
        Ok(_) => Invalid::whole(message(&error)),
    })
}

/// Reads a value that was JSON already.
pub(crate) fn value<T: DeserializeOwned>(value: Value, hint: &str) -> Result<T, Invalid> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| Invalid::explained(error.path(), &message(error.inner()), hint))
}

/// What serde_json says, without the line and column that it appends: places are given by name.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&end).map(str::to_string).unwrap_or(text)
}

/// `checks[3].cost`, and in it the member that is wrong, if that is not part of the path.
fn place(path: &Path, member: Option<&str>) -> String {
    let mut text = String::new();
    let member = member.map(|member| Segment::Map { key: member.to_string() });
    for segment in path.iter().chain(&member) {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } if text.is_empty() => text.push_str(&shortened(key)),
            Segment::Map { key } => text.push_str(&format!(".{}", shortened(key))),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    text
}

/// What to say about a name that is not known, with the one that was probably meant.
pub(crate) fn unknown(name: &str, known: &[&str]) -> String {
    format!("is not known{}", suggestion(name, known))
}

/// A text from outside, short enough to be repeated.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    const MAX: usize = 60;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A text from outside as it is shown in a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

#[cfg(test)]
mod tests;
