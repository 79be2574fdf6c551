//! A pattern for an attribute of a request: an exact value, or a glob in which `*` stands for any text.

/// One value or glob of a rule's `when`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The literal pieces between the stars; one piece means no star, an exact value.
    pieces: Vec<String>,
}

impl Pattern {
    /// Reads a pattern. `*` matches any text, also across `/`; `\*`, `\\` and `\!` are literal.
    pub fn new(text: &str) -> Pattern {
        let mut pieces = vec![String::new()];
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let literal = match c {
                '*' => {
                    pieces.push(String::new());
                    continue;
                }
                '\\' => chars.next_if(|next| matches!(next, '*' | '\\' | '!')).unwrap_or('\\'),
                other => other,
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(literal);
            }
        }
        Pattern { pieces }
    }

    /// The only matching value, if there is just one.
    pub fn exact(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// What every matching value starts with.
    pub fn prefix(&self) -> &str {
        &self.pieces[0]
    }

    /// Whether the value matches. Linear in the value for each piece, whatever the pattern.
    pub fn matches(&self, value: &str) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            return self.pieces[0] == value;
        };
        let Some(mut rest) = value.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str()))
        else {
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
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, value, expected) in cases {
            assert_eq!(Pattern::new(pattern).matches(value), expected, "{pattern} on {value}");
        }
    }
}
