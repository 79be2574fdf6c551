//! A path with named segments, as in `/users/{id}/orders/*`.
//!
//! `{id}` stands for one segment, which must not be empty; a key template can use it. `*` and `**` stand for any text,
//! also across slashes.

/// A path pattern with at least one named segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPattern {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Anything,
    Segment(String),
}

impl PathPattern {
    /// Reads a pattern. `None` if no segment of it is named, an error if a name is unusable.
    pub(crate) fn read(text: &str) -> Option<Result<PathPattern, String>> {
        let unescaped = text.replace(r"\\", "").replace(r"\{", "").replace(r"\}", "");
        if !text.starts_with('/') || !unescaped.contains(['{', '}']) {
            return None;
        }
        if text.contains('\\') {
            return Some(Err(format!("{text:?}: a path with named segments cannot contain a backslash")));
        }
        Some(parse(text).map(|parts| PathPattern { parts }))
    }

    /// What every matching path starts with.
    pub(crate) fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            _ => "",
        }
    }

    /// The names of its segments.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Segment(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The named segments of a path that matches.
    pub(crate) fn captures<'v>(&self, path: &'v str) -> Option<Vec<(&str, &'v str)>> {
        let mut captured = Vec::new();
        let mut failed_from = vec![usize::MAX; self.parts.len()];
        self.capture(path, 0, 0, &mut captured, &mut failed_from).then_some(captured)
    }

    /// Matches from a part and a position on. A star that failed at some position fails at all later ones, so each star
    /// looks at a position once: the time is at most parts times length.
    fn capture<'p, 'v>(
        &'p self,
        path: &'v str,
        part: usize,
        at: usize,
        captured: &mut Vec<(&'p str, &'v str)>,
        failed_from: &mut [usize],
    ) -> bool {
        let rest = &path[at..];
        match self.parts.get(part) {
            None => rest.is_empty(),
            Some(Part::Literal(text)) => {
                rest.starts_with(text.as_str()) && self.capture(path, part + 1, at + text.len(), captured, failed_from)
            }
            Some(Part::Anything) => {
                let untried = at..failed_from[part].min(path.len() + 1);
                let found = untried
                    .filter(|next| path.is_char_boundary(*next))
                    .any(|next| self.capture(path, part + 1, next, captured, failed_from));
                if !found {
                    failed_from[part] = failed_from[part].min(at);
                }
                found
            }
            Some(Part::Segment(name)) => {
                let end = rest.find('/').unwrap_or(rest.len());
                captured.push((name, &rest[..end]));
                let found = end > 0 && self.capture(path, part + 1, at + end, captured, failed_from);
                if !found {
                    captured.pop();
                }
                found
            }
        }
    }
}

fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts: Vec<Part> = Vec::new();
    let mut literal = String::new();
    let mut names: Vec<&str> = Vec::new();
    for (index, segment) in text.split('/').enumerate() {
        if index > 0 {
            literal.push('/');
        }
        let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            if segment.contains(['{', '}']) {
                return Err(format!(
                    "{text:?}: {segment:?} mixes a name with text; name a whole segment, as in /users/{{id}}"
                ));
            }
            let mut pieces = segment.split('*');
            literal.push_str(pieces.next().unwrap_or_default());
            for piece in pieces {
                flush(&mut parts, &mut literal);
                if parts.last() != Some(&Part::Anything) {
                    parts.push(Part::Anything);
                }
                literal.push_str(piece);
            }
            continue;
        };
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if name.is_empty() || !is_name {
            return Err(format!(
                "{text:?}: {{{name}}} is not a name; use letters, digits and _ - ., as in /users/{{id}}"
            ));
        }
        if names.contains(&name) {
            return Err(format!("{text:?} names two segments {name:?}; give each its own name"));
        }
        names.push(name);
        flush(&mut parts, &mut literal);
        parts.push(Part::Segment(name.to_string()));
    }
    flush(&mut parts, &mut literal);
    Ok(parts)
}

fn flush(parts: &mut Vec<Part>, literal: &mut String) {
    if !literal.is_empty() {
        parts.push(Part::Literal(std::mem::take(literal)));
    }
}

#[cfg(test)]
mod tests {
    use super::PathPattern;

    fn captures(pattern: &str, path: &str) -> Option<String> {
        let pattern = PathPattern::read(pattern).expect("named segments").expect("a valid pattern");
        let captured = pattern.captures(path)?;
        Some(captured.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_name_stands_for_one_segment() {
        let found = |text: &str| Some(text.to_string());
        assert_eq!(captures("/users/{id}", "/users/42"), found("id=42"));
        assert_eq!(captures("/users/{id}", "/users/"), None);
        assert_eq!(captures("/users/{id}", "/users/42/orders"), None);
        assert_eq!(captures("/users/{id}/orders/*", "/users/42/orders/7/x"), found("id=42"));
        assert_eq!(captures("/{a}/{b}", "/x/y"), found("a=x b=y"));
        assert_eq!(captures("/{a}/{b}", "/x"), None);
        assert_eq!(captures("/**/users/{id}", "/v1/eu/users/42"), found("id=42"));
        assert_eq!(captures("/*/users/{id}/x", "/a/users/1/users/2/x"), found("id=2"));
        assert_eq!(captures("/ü*/{id}", "/üöä/ß"), found("id=ß"));
    }

    #[test]
    fn a_path_made_to_be_slow_is_not() {
        let (pattern, path) = (format!("/{}{{id}}/end", "*/a/".repeat(12)), "/a".repeat(30_000));
        assert_eq!(captures(&pattern, &path), None);
    }

    #[test]
    fn unusable_names_are_refused_with_the_fix() {
        let error = |text| PathPattern::read(text).expect("braces").expect_err(text);
        assert!(error("/users/u{id}").contains("name a whole segment"));
        assert!(error("/users/{}").contains("not a name"));
        assert!(error("/users/{id:[0-9]+}").contains("not a name"));
        assert!(error("/{id}/{id}").contains("two segments"));
        assert_eq!(PathPattern::read("/users/*"), None);
        assert_eq!(PathPattern::read("{json}"), None);
        assert_eq!(PathPattern::read(r"/users/\{id\}"), None);
        assert!(error(r"/users/{id}/\*").contains("backslash"));
    }
}
