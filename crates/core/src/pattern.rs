//! A pattern for an attribute of a request: an exact value, a glob in which `*` stands for any text, a network of
//! addresses, or a path with named segments.

use crate::network::Network;
use crate::path_pattern::PathPattern;

/// One value, glob, network or path of a rule's `when`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The literal pieces between the stars; one piece means no star, an exact value.
    Glob(Vec<String>),
    Network(Network),
    Path(PathPattern),
}

impl Pattern {
    /// Reads a pattern. `*` matches any text, also across `/`; `10.0.0.0/8` is a network, and `/users/{id}` a path
    /// with a named segment. A backslash makes `*`, `!`, `/`, `{`, `}` and itself literal.
    pub fn new(text: &str) -> Result<Pattern, String> {
        if let Some(network) = Network::read(text) {
            return network.map(|network| Pattern(Kind::Network(network)));
        }
        if let Some(path) = PathPattern::read(text) {
            return path.map(|path| Pattern(Kind::Path(path)));
        }
        Ok(Pattern(Kind::Glob(pieces(text))))
    }

    /// Every value.
    pub(crate) fn anything() -> Pattern {
        Pattern(Kind::Glob(vec![String::new(), String::new()]))
    }

    /// Whether every value matches.
    pub fn is_anything(&self) -> bool {
        matches!(&self.0, Kind::Glob(pieces) if pieces.len() > 1 && pieces.iter().all(String::is_empty))
    }

    /// The only matching value, if there is just one.
    pub fn exact(&self) -> Option<&str> {
        match &self.0 {
            Kind::Glob(pieces) if pieces.len() == 1 => Some(&pieces[0]),
            _ => None,
        }
    }

    /// What every matching value starts with.
    pub fn prefix(&self) -> &str {
        match &self.0 {
            Kind::Glob(pieces) => &pieces[0],
            Kind::Network(_) => "",
            Kind::Path(path) => path.prefix(),
        }
    }

    /// Whether the value matches.
    pub fn matches(&self, value: &str) -> bool {
        match &self.0 {
            Kind::Glob(pieces) => matches_pieces(pieces, value),
            Kind::Network(network) => network.contains(value),
            Kind::Path(path) => path.captures(value).is_some(),
        }
    }

    /// The names of the segments of a path.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let path = match &self.0 {
            Kind::Path(path) => Some(path),
            _ => None,
        };
        path.into_iter().flat_map(PathPattern::names)
    }

    /// The named segments of a matching value; empty if there are none.
    pub(crate) fn captures<'v>(&self, value: &'v str) -> Option<Vec<(&str, &'v str)>> {
        match &self.0 {
            Kind::Path(path) => path.captures(value),
            _ => self.matches(value).then(Vec::new),
        }
    }
}

fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let literal = match c {
            '*' => {
                pieces.push(String::new());
                continue;
            }
            '\\' => chars.next_if(|next| matches!(next, '*' | '\\' | '!' | '/' | '{' | '}')).unwrap_or('\\'),
            other => other,
        };
        if let Some(piece) = pieces.last_mut() {
            piece.push(literal);
        }
    }
    pieces
}

/// Linear in the value for each piece, whatever the pattern.
fn matches_pieces(pieces: &[String], value: &str) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces[0] == value;
    };
    let Some(mut rest) = value.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str())) else {
        return false;
    };
    // The leftmost match of each piece leaves the most room for the next.
    for piece in middle {
        match rest.find(piece.as_str()) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn stars_match_anything_and_nothing_else_is_special() {
        let cases = [
            ("/api/*", "/api/", true),
            ("/api/*", "/api/v1/users", true),
            ("/api/*", "/apix", false),
            ("*.example", "a.example", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*x*y*", "1x2y3", true),
            ("*x*y*", "yx", false),
            ("a?c", "abc", false),
            ("[ab]", "[ab]", true),
            (r"2\*3", "2*3", true),
            (r"2\*3", "2x3", false),
            (r"\!x", "!x", true),
            ("*", "", true),
            ("/api/**", "/api/v1/users", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("/users/{id}", "/users/42", true),
            ("{json}", "{json}", true),
            (r"10.0.0.0\/8", "10.0.0.0/8", true),
            (r"10.0.0.0\/8", "10.1.2.3", false),
            (r"/users/\{id\}", "/users/{id}", true),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, value, expected) in cases {
            assert_eq!(Pattern::new(pattern).expect(pattern).matches(value), expected, "{pattern} on {value}");
        }
    }
}
