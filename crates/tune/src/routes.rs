//! Which routes a log has: paths with what varies in them replaced, `/users/{id}`.
//!
//! Segments that look like identifiers are replaced on sight. Others are kept in a tree, and where a place turns out to have many different
//! values, all but the frequent ones become `{name}`. The tree is bounded; what does not fit is counted.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::hash::ByHash;

/// A place with more different values than this varies.
const VALUES: usize = 40;
/// The same for the first segment, where sites have their pages.
const FIRST_VALUES: usize = 200;
/// A value with at least this share of its place's requests stays as it is.
const FREQUENT: f64 = 0.02;
/// Nodes of the tree.
const MOST_NODES: usize = 20_000;
/// Routes that are found again without a walk through the tree.
const MOST_KNOWN: usize = 100_000;
/// Segments that are looked at.
const DEPTH: usize = 8;

/// What happened on a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    /// Answered with 4xx.
    pub(crate) refused: u64,
    /// Answered with 5xx.
    pub(crate) failed: u64,
    pub(crate) sign_ins: u64,
    /// Which no rule applies to.
    pub(crate) no_rule: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.failed += other.failed;
        self.sign_ins += other.sign_ins;
        self.no_rule += other.no_rule;
    }
}

/// The routes of a log.
#[derive(Debug)]
pub(crate) struct Routes {
    nodes: Vec<Node>,
    known: ByHash<u32>,
    /// Requests on routes that did not fit.
    beyond: u64,
}

#[derive(Debug, Default)]
struct Node {
    children: BTreeMap<Box<str>, u32>,
    varies: Option<u32>,
    counts: Counts,
    /// Where a node went that was merged.
    moved: Option<u32>,
}

/// `GET /users/{id}/orders`, into a text that is used again.
pub(crate) fn write_route(text: &mut String, method: &str, path: &str) {
    text.push_str(method);
    text.push(' ');
    let mut rest = path.strip_prefix('/').or_else(|| path.split_once('/').map(|(_, rest)| rest));
    let mut depth = 0;
    while let Some(from) = rest {
        let (segment, after) = match memchr::memchr(b'/', from.as_bytes()) {
            Some(slash) => (&from[..slash], Some(&from[slash + 1..])),
            None => (from, None),
        };
        rest = after;
        depth += 1;
        if depth > DEPTH {
            text.push_str("/**");
            return;
        }
        text.push('/');
        match (after.is_none().then(|| extension(segment)).flatten(), varies(segment)) {
            (Some(extension), _) => {
                text.push_str("*.");
                text.push_str(extension);
            }
            (None, true) => text.push_str("{id}"),
            _ => text.push_str(segment),
        }
    }
}

/// Whether a segment looks like an identifier: a number, a UUID, a hash, a token, an address.
fn varies(segment: &str) -> bool {
    // In one pass: every path that is not known is looked at.
    let (mut digits, mut hex, mut wordy, mut at_sign, mut escaped) = (0, true, true, false, false);
    for byte in segment.bytes() {
        digits += usize::from(byte.is_ascii_digit());
        hex &= byte.is_ascii_hexdigit() || byte == b'-';
        wordy &= byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        at_sign |= byte == b'@';
        escaped |= byte == b'%';
    }
    let length = segment.len();
    if digits == 0 {
        return at_sign;
    }
    digits == length
        || hex && length >= 8
        || length >= 20 && digits >= 2
        || digits >= 4 && wordy
        || at_sign
        || escaped && segment.contains("%40")
}

/// The extension of a file that belongs to a page.
fn extension(segment: &str) -> Option<&str> {
    const FILES: &[&str] = &[
        "js", "mjs", "css", "map", "png", "jpg", "jpeg", "gif", "svg", "ico", "webp", "avif", "woff", "woff2", "ttf",
        "mp4", "webm", "mp3", "pdf", "zip", "gz",
    ];
    let dot = memchr::memrchr(b'.', segment.as_bytes()).filter(|dot| *dot > 0)?;
    let extension = &segment[dot + 1..];
    FILES.contains(&extension).then_some(extension)
}

impl Routes {
    pub(crate) fn new() -> Routes {
        Routes { nodes: vec![Node::default()], known: ByHash::default(), beyond: 0 }
    }

    /// Counts a request on a route.
    pub(crate) fn count(&mut self, hash: u64, text: &str, counts: Counts) {
        let place = match self.known.get(&hash).copied() {
            Some(place) => Some(self.moved(place)),
            None => {
                let place = self.walk(text);
                if let Some(place) = place.filter(|_| self.known.len() < MOST_KNOWN) {
                    self.known.insert(hash, place);
                }
                place
            }
        };
        let Some(place) = place else {
            self.beyond += 1;
            return;
        };
        self.nodes[place as usize].counts += counts;
    }

    fn moved(&self, mut place: u32) -> u32 {
        while let Some(next) = self.nodes[place as usize].moved {
            place = next;
        }
        place
    }

    /// The node of a route, made where there is none.
    fn walk(&mut self, text: &str) -> Option<u32> {
        let (method, path) = text.split_once(' ')?;
        let mut at = 0;
        for (depth, name) in std::iter::once(method).chain(path.split('/').skip(1)).enumerate() {
            at = self.child(at, name, depth)?;
        }
        Some(at)
    }

    fn child(&mut self, at: u32, name: &str, depth: usize) -> Option<u32> {
        let node = &self.nodes[at as usize];
        if let Some(child) = node.children.get(name) {
            return Some(*child);
        }
        if let Some(varies) = node.varies {
            return Some(varies);
        }
        if self.nodes.len() >= MOST_NODES {
            return None;
        }
        let most = if depth <= 1 { FIRST_VALUES } else { VALUES };
        if depth > 0 && node.children.len() >= most {
            self.merge_children(at);
            return self.child(at, name, depth);
        }
        let child = self.add();
        self.nodes[at as usize].children.insert(name.into(), child);
        Some(child)
    }

    fn add(&mut self) -> u32 {
        self.nodes.push(Node::default());
        (self.nodes.len() - 1) as u32
    }

    /// All requests at a node and below it.
    fn total(&self, at: u32) -> u64 {
        let node = &self.nodes[at as usize];
        let below: u64 = node.children.values().chain(node.varies.iter()).map(|child| self.total(*child)).sum();
        node.counts.requests + below
    }

    fn merge_children(&mut self, at: u32) {
        let varies = self.add();
        let all = self.total(at);
        let children = std::mem::take(&mut self.nodes[at as usize].children);
        for (name, child) in children {
            let is_frequent = self.total(child) as f64 >= (all as f64 * FREQUENT).max(10.0);
            if is_frequent || name.starts_with('{') || name.starts_with("*.") {
                self.nodes[at as usize].children.insert(name, child);
            } else {
                self.merge(child, varies);
            }
        }
        self.nodes[at as usize].varies = Some(varies);
    }

    fn merge(&mut self, from: u32, to: u32) {
        let node = std::mem::take(&mut self.nodes[from as usize]);
        self.nodes[from as usize].moved = Some(to);
        self.nodes[to as usize].counts += node.counts;
        for (name, child) in node.children {
            match self.nodes[to as usize].children.get(&name).copied() {
                Some(other) => self.merge(child, other),
                None => {
                    self.nodes[to as usize].children.insert(name, child);
                }
            }
        }
        if let Some(child) = node.varies {
            match self.nodes[to as usize].varies {
                Some(other) => self.merge(child, other),
                None => self.nodes[to as usize].varies = Some(child),
            }
        }
    }

    /// The routes with most of something.
    pub(crate) fn busiest(&self, most: usize, by: fn(&Counts) -> u64) -> Vec<(String, Counts)> {
        let mut all = Vec::new();
        self.collect(0, &mut String::new(), &mut all);
        all.retain(|(_, counts)| by(counts) > 0);
        all.sort_by(|a, b| by(&b.1).cmp(&by(&a.1)).then_with(|| a.0.cmp(&b.0)));
        all.truncate(most);
        all
    }

    /// Requests on routes that did not fit.
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }

    fn collect(&self, at: u32, text: &mut String, all: &mut Vec<(String, Counts)>) {
        let node = &self.nodes[at as usize];
        if node.counts.requests > 0 {
            all.push((text.clone(), node.counts));
        }
        let varying = node.varies.iter().map(|child| ("{name}", *child));
        for (name, child) in node.children.iter().map(|(name, child)| (name.as_ref(), *child)).chain(varying) {
            let length = text.len();
            match (at, length) {
                (0, _) => {
                    text.push_str(name);
                    text.push(' ');
                }
                _ => {
                    text.push('/');
                    text.push_str(name);
                }
            }
            self.collect(child, text, all);
            text.truncate(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::hash_of;

    fn counted(paths: &[String]) -> Vec<(String, u64)> {
        let mut routes = Routes::new();
        for path in paths {
            let mut text = String::new();
            write_route(&mut text, "GET", path);
            routes.count(hash_of(0, text.as_bytes()), &text, Counts { requests: 1, ..Counts::default() });
        }
        routes
            .busiest(10, |counts| counts.requests)
            .into_iter()
            .map(|(route, counts)| (route, counts.requests))
            .collect()
    }

    #[test]
    fn identifiers_are_replaced_on_sight() {
        let cases = [
            ("/", "GET /"),
            ("/users/42", "GET /users/{id}"),
            ("/v1/users/550e8400-e29b-41d4-a716-446655440000/x", "GET /v1/users/{id}/x"),
            ("/static/app.3f2a1b.js", "GET /static/*.js"),
            ("/blob/deadbeef12", "GET /blob/{id}"),
            ("/by/ann@example.com", "GET /by/{id}"),
            ("/by/ann%40example.com", "GET /by/{id}"),
            ("/a//b/", "GET /a//b/"),
            ("*", "GET "),
            ("/.js", "GET /.js"),
            ("/a/b2/c", "GET /a/b2/c"),
        ];
        for (path, expected) in cases {
            let mut text = String::new();
            write_route(&mut text, "GET", path);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_place_with_many_values_varies_and_its_frequent_values_stay() {
        let mut paths: Vec<String> = (0..300).map(|_| "/users/me".to_owned()).collect();
        let name = |number: usize| {
            let letter = |place: usize| char::from(b'a' + (number / place % 26) as u8);
            format!("/users/{}{}{}/posts", letter(1), letter(26), letter(676))
        };
        paths.extend((0..200).map(name));
        assert_eq!(counted(&paths), [("GET /users/me".to_owned(), 300), ("GET /users/{name}/posts".to_owned(), 200)]);
    }

    #[test]
    fn the_tree_is_bounded() {
        let mut routes = Routes::new();
        for method in 0..50_000 {
            let text = format!("M{method} /x");
            routes.count(hash_of(0, text.as_bytes()), &text, Counts { requests: 1, ..Counts::default() });
        }
        assert!(routes.nodes.len() <= MOST_NODES && routes.beyond() > 0);
    }
}
