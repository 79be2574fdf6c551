//! Values with stars, as the reference service compares them: a star is any text, also none, anywhere in the value.

/// Whether a value matches a pattern.
///
/// With another pattern as the value, this says whether every value of that one matches too: a literal piece never
/// contains a star, so only a star can stand for one.
pub(super) fn matches(pattern: &str, value: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = &pieces[..] else { return pattern == value };
    let Some(mut rest) = value.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// Whether some value may match both; it may say so of patterns that share none.
pub(super) fn may_overlap(one: &str, other: &str) -> bool {
    let ends = |pattern: &'_ str| {
        let (first, _) = pattern.split_once('*').unwrap_or((pattern, ""));
        let (_, last) = pattern.rsplit_once('*').unwrap_or(("", pattern));
        (first.to_string(), last.to_string())
    };
    let ((first, last), (other_first, other_last)) = (ends(one), ends(other));
    let begins = first.starts_with(&other_first) || other_first.starts_with(&first);
    begins && (last.ends_with(&other_last) || other_last.ends_with(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_any_text_and_patterns_can_be_compared() {
        for (pattern, value, expected) in [
            ("/api/*/admin", "/api/v1/admin", true),
            ("/api/*/admin", "/api//admin", true),
            ("/api/*/admin", "/api/admin", false),
            ("foo*bar*baz", "foobarbaz", true),
            ("foo*bar*baz", "foobaz", false),
            ("a**b", "ab", true),
            ("*", "", true),
            ("a*", "b", false),
            // Patterns within patterns.
            ("f*", "foo*", true),
            ("foo*", "f*", false),
            ("*a*", "x*a*y", true),
            ("a*b", "a*", false),
        ] {
            assert_eq!(matches(pattern, value), expected, "{pattern} on {value}");
        }
        assert!(
            may_overlap("a*", "*b")
                && may_overlap("ab*", "a*c")
                && !may_overlap("a*", "b*")
                && !may_overlap("*a", "*b")
        );
    }
}
