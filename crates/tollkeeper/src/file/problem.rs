//! Errors in a file: file, line, column, field and what to do. Never a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// All errors in a file.
#[derive(Debug)]
pub struct ConfigError {
    /// The file could not be read, so nothing is known about its contents.
    pub unreadable: bool,
    /// Each of them, in file order. Never empty.
    pub problems: Vec<Problem>,
}

/// One error, and where it is.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The column, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// The field, such as `rules[1].limit`; empty for the whole file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong with it and what to do.
    pub problem: String,
    /// The line, and a second one that marks the place in it.
    #[serde(skip)]
    excerpt: Option<(String, String)>,
}

impl ConfigError {
    /// A single one.
    pub fn of(problem: Problem) -> ConfigError {
        ConfigError { unreadable: false, problems: vec![problem] }
    }
}

impl Problem {
    /// An error in a field. Words that may contain a password are cut short.
    pub fn new(file: &Path, field: String, problem: String) -> Problem {
        let problem = without_secrets(&problem);
        Problem { file: file.to_path_buf(), line: None, column: None, field, problem, excerpt: None }
    }

    /// The same, at a line and column of the text.
    pub fn at(mut self, place: Option<(u64, u64)>, text: &str) -> Problem {
        if let Some((line, column)) = place {
            (self.line, self.column) = (Some(line), Some(column));
            let line = text.lines().nth(line as usize - 1);
            self.excerpt = line.filter(|line| !has_secret(line)).map(|line| excerpt(line, column));
        }
        self
    }
}

/// `rules.yaml:7:12: rules[1].limit: ...`, the line, and a mark under the place.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.problem)?;
        if let (Some((text, mark)), Some(line)) = (&self.excerpt, self.line) {
            let gutter = line.to_string();
            let blank = " ".repeat(gutter.len());
            write!(f, "\n  {gutter} | {text}\n  {blank} | {mark}")?;
        }
        Ok(())
    }
}

/// Lines that may contain a password or a token are not repeated: errors end up in logs.
fn has_secret(line: &str) -> bool {
    let is_address = ["://", "redis", "postgres"].iter().any(|part| line.contains(part));
    let names_one = ["token", "password", "secret", "webhook", "otlp"].iter().any(|name| line.contains(name));
    (is_address && line.contains(['@', '?'])) || names_one
}

/// A text in which words that may contain a password are cut short.
fn without_secrets(text: &str) -> String {
    let shown = |word: &str| {
        let hidden = has_secret(word) && (word.contains('@') || word.contains('='));
        let start = word.find(':').map_or(0, |colon| colon + 1);
        if hidden { format!("{}…", &word[..start]) } else { word.to_string() }
    };
    text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// The part of a line around a column, and a mark under it. Files made by programs have very long lines.
fn excerpt(line: &str, column: u64) -> (String, String) {
    const BEFORE: usize = 60;
    const SHOWN: usize = 100;
    let column = (column as usize).saturating_sub(1);
    let first = if column > SHOWN - 20 { column - BEFORE } else { 0 };
    let dots = if first > 0 { "..." } else { "" };
    let text: String = line.chars().skip(first).take(SHOWN).collect();
    (format!("{dots}{text}"), format!("{}^", " ".repeat(dots.len() + column - first)))
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
