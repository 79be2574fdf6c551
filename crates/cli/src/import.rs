//! Configurations of other rate limiters, as rules.

mod descriptors;
mod glob;
mod rules;

use std::path::{Path, PathBuf};

use crate::config::{ConfigError, Document, Problem};
use descriptors::{Node, Root};

/// Rules, and how they differ from the original.
#[derive(Debug)]
pub struct Imported {
    /// A configuration file.
    pub yaml: String,
    /// In file order, each with its place.
    pub differences: Vec<Problem>,
}

/// What to do with a domain that several files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameDomain {
    /// As the reference service does by default.
    Refused,
    /// As with `MERGE_DOMAIN_CONFIG`.
    Merged,
}

/// What holds for every file, beside its own differences.
pub const ALWAYS: [&str; 5] = [
    "a call that is denied charges nothing, and its descriptors pass or fail together; the reference service counts denied \
     hits too, and each descriptor separately",
    "entries are compared by key and value; the reference service joins them into one string, so that `a_*` also matches entries \
     whose key begins with `a_`, and an entry whose value is literally that of a wildcard finds it first",
    "a descriptor without hits (hits_addend: 0) is over its limit when nothing is left; in the reference service only after a \
     denied hit",
    "a limit that Envoy sends with a descriptor counts in the bucket of its rule; in the reference service one with a unit \
     other than the rule's is counted separately",
    "statuses name every limit by its rule, and an unlimited descriptor has no limit_remaining",
];

/// Imports files of envoyproxy/ratelimit.
pub fn envoy_ratelimit(files: &[(PathBuf, String)], same_domain: SameDomain) -> Result<Imported, ConfigError> {
    let mut read: Vec<(Document, Root)> = Vec::new();
    for (path, text) in files {
        let mut document = Document::parse(path, text)?;
        let root: Root = document.read()?;
        read.push((document, root));
    }
    let mut problems = Vec::new();
    let mut domains: Vec<(&str, Vec<&Node>, &Path)> = Vec::new();
    for ((document, root), (path, _)) in read.iter().zip(files) {
        problems.extend(root.problems().into_iter().map(|note| document.problem(note)));
        match domains.iter_mut().find(|(domain, _, _)| *domain == root.domain.0) {
            None => domains.push((&root.domain.0, root.nodes().iter().collect(), path)),
            Some((domain, _, first)) if same_domain == SameDomain::Refused => {
                let problem = format!(
                    "`{domain}` is also the domain of {}; with MERGE_DOMAIN_CONFIG, import them with --merge-domains",
                    first.display()
                );
                problems.push(document.problem(("domain".into(), problem)));
            }
            Some((_, nodes, first)) => {
                for (index, node) in root.nodes().iter().enumerate() {
                    if nodes.iter().any(|known| known.label() == node.label()) {
                        let problem = format!("`{}` is in {} too; keep one", node.label(), first.display());
                        problems.push(document.problem((format!("descriptors[{index}].key"), problem)));
                    }
                    nodes.push(node);
                }
            }
        }
    }
    if !problems.is_empty() {
        return Err(ConfigError { unreadable: false, problems });
    }
    let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names: Vec<String> = files.iter().map(|(path, _)| name(path)).collect();
    let domains: Vec<(&str, Vec<&Node>)> = domains.into_iter().map(|(domain, nodes, _)| (domain, nodes)).collect();
    let differences = read.iter().flat_map(|(document, root)| {
        root.differences().into_iter().map(|note| document.problem(note)).collect::<Vec<_>>()
    });
    Ok(Imported { yaml: rules::yaml(&names.join(", "), &rules::of(&domains)), differences: differences.collect() })
}
