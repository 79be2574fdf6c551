//! An error in some input, and where it is.

use std::fmt::{self, Display};

use serde_path_to_error::{Path, Segment};

use super::explain::{MISSING, explain};
use super::text::shortened;

/// An error, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The place, such as `checks[3].cost`; empty for the whole input.
    pub field: String,
    /// What is wrong with it and what to do.
    pub problem: String,
}

impl Invalid {
    /// An error in a field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Invalid {
        Invalid { field: field.into(), problem: problem.into() }
    }

    /// An error in the whole input.
    pub fn whole(problem: String) -> Invalid {
        Invalid::new("", problem)
    }

    /// A serde error in plain English. `hint` shows how the whole should look.
    pub fn explained(path: &Path, message: &str, hint: &str) -> Invalid {
        let (member, mut problem) = explain(message);
        let field = place(path, member);
        if !hint.is_empty() && (field.is_empty() || problem == MISSING) {
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

impl std::error::Error for Invalid {}

#[cfg(feature = "http")]
impl From<Invalid> for crate::http::Problem {
    fn from(invalid: Invalid) -> crate::http::Problem {
        crate::http::Problem::invalid(invalid.field, invalid.problem)
    }
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
