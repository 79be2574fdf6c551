//! Configurations of other rate limiters, as rules.

mod descriptors;
mod rules;

use std::path::Path;

use crate::config::{ConfigError, Document, Problem};
use descriptors::Root;

/// Rules, and how they differ from the original.
#[derive(Debug)]
pub(crate) struct Imported {
    /// A configuration file.
    pub(crate) yaml: String,
    /// In file order, each with its place.
    pub(crate) differences: Vec<Problem>,
}

/// Imports a file of envoyproxy/ratelimit.
pub(crate) fn envoy_ratelimit(path: &Path, text: &str) -> Result<Imported, ConfigError> {
    let document = Document::parse(path, text)?;
    let root: Root = document.read()?;
    let found = |notes: Vec<(String, String)>| -> Vec<Problem> {
        notes.into_iter().map(|note| document.problem(note)).collect()
    };
    let problems = root.problems();
    if !problems.is_empty() {
        return Err(ConfigError { unreadable: false, problems: found(problems) });
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Imported { yaml: rules::yaml(&name, &rules::of(&root)), differences: found(root.differences()) })
}
