//! The lookup of the reference service, written from its documentation, and random trees to compare rules with.

use proptest::prelude::*;

/// One descriptor of a file. Values are short and few, so that they often match.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    key: &'static str,
    value: &'static str,
    limited: bool,
    children: Vec<Node>,
}

const KEYS: [&str; 2] = ["a", "b"];
const VALUES: [&str; 12] = ["", "x", "xy", "xyz", "x*", "xy*", "*z", "x*z", "*y*", "*", "10.0.0.0/8", "/x/{id}"];

pub(crate) fn trees() -> impl Strategy<Value = Vec<Node>> {
    let node = (prop::sample::select(&KEYS[..]), prop::sample::select(&VALUES[..]), any::<bool>());
    let leaf = node.clone().prop_map(|(key, value, limited)| Node { key, value, limited, children: Vec::new() });
    let tree = leaf.prop_recursive(2, 12, 4, move |below| {
        (node.clone(), prop::collection::vec(below, 0..5)).prop_map(|((key, value, limited), children)| {
            let children = without_doubles(children);
            Node { key, value, limited, children }
        })
    });
    prop::collection::vec(tree, 1..6).prop_map(without_doubles)
}

fn without_doubles(nodes: Vec<Node>) -> Vec<Node> {
    let mut kept: Vec<Node> = Vec::new();
    for node in nodes {
        if !kept.iter().any(|other| (other.key, other.value) == (node.key, node.value)) {
            kept.push(node);
        }
    }
    kept
}

/// A descriptor as it is sent.
pub(crate) type Entries = Vec<(&'static str, &'static str)>;

pub(crate) fn descriptors() -> impl Strategy<Value = Vec<Entries>> {
    let entry = (
        prop::sample::select(&KEYS[..]),
        prop::sample::select(&["x", "xy", "xyz", "xz", "q", "10.0.0.0/8", "10.1.2.3", "/x/{id}", "/x/7"][..]),
    );
    prop::collection::vec(prop::collection::vec(entry, 1..4), 30)
}

/// The file.
pub(crate) fn yaml(nodes: &[Node]) -> String {
    format!("domain: d\ndescriptors: {}\n", list(nodes))
}

fn list(nodes: &[Node]) -> String {
    let one = |node: &Node| {
        let limit = if node.limited { ", rate_limit: { unit: day, requests_per_unit: 1000 }" } else { "" };
        format!("{{ key: {}, value: '{}'{limit}, descriptors: {} }}", node.key, node.value, list(&node.children))
    };
    format!("[{}]", nodes.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Where a descriptor ends up: the labels on the path to its limit, if it has one.
pub(crate) fn look_up(nodes: &[Node], entries: &[(&str, &str)]) -> Option<String> {
    let (mut level, mut path) = (nodes, vec!["d".to_string()]);
    for (depth, (key, value)) in entries.iter().enumerate() {
        let of_key = || level.iter().filter(|node| node.key == *key);
        let exact = of_key().find(|node| node.value == *value);
        let pattern = || of_key().find(|node| node.value.contains('*') && matches(node.value, value));
        let alone = || of_key().find(|node| node.value.is_empty());
        let node = exact.or_else(pattern).or_else(alone)?;
        path.push(if node.value.is_empty() { node.key.into() } else { format!("{}_{}", node.key, node.value) });
        if depth + 1 == entries.len() {
            return node.limited.then(|| path.join(".").replace(['*', '{', '}'], "-"));
        }
        level = &node.children;
    }
    None
}

/// A star is any text: tried at every length.
fn matches(pattern: &str, value: &str) -> bool {
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('*') => {
            value.char_indices().map(|(at, _)| at).chain([value.len()]).any(|at| matches(&pattern[1..], &value[at..]))
        }
        Some(c) => value.strip_prefix(c).is_some_and(|rest| matches(&pattern[c.len_utf8()..], rest)),
    }
}
