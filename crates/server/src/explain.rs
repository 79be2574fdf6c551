//! Turns what serde says about a bad value into what a person needs: the value, and the nearest right name or kind.

/// serde's message in our words. Something unknown is answered with a suggestion.
pub(crate) fn explain(message: &str) -> String {
    // serde_json appends the place, which callers know better.
    let message = message.split(" at line ").next().unwrap_or(message);
    if let Some((name, expected)) = quoted_after(message, "unknown field `") {
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            // `{ limit: 5,000/s }` is two fields to YAML.
            return format!(
                "there is no field `{name}`; inside {{ }} a comma ends a value: write 5_000/s, or use quotes"
            );
        }
        return format!("there is no field `{name}`{}", suggestion(name, &names_in(expected)));
    }
    if let Some((name, expected)) = quoted_after(message, "unknown variant `") {
        return format!("`{name}` is not possible here{}", suggestion(name, &names_in(expected)));
    }
    if let Some((name, _)) = quoted_after(message, "missing field `") {
        return format!("the field `{name}` is missing");
    }
    let found = message.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    match found.split_once(", expected ") {
        Some((found, expected)) => format!("{found} is not possible here; write {}", type_name(expected)),
        None => found.to_string(),
    }
}

fn type_name(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        expected if expected.starts_with("struct ") => "named fields",
        other => other,
    }
}

fn quoted_after<'m>(message: &'m str, start: &str) -> Option<(&'m str, &'m str)> {
    message.strip_prefix(start)?.split_once('`')
}

fn names_in(expected: &str) -> Vec<&str> {
    expected.split('`').skip(1).step_by(2).collect()
}

/// "; did you mean `limit`?" when a known name is near, else what is possible.
pub(crate) fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None if known.is_empty() => "; none is possible here".to_string(),
        None => format!("; possible are {}", known.join(", ")),
    }
}

/// The name that was probably meant, if one is near.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // What comes from outside may be long, and comparing takes time by the product of both lengths.
    let name: String = name.chars().take(60).collect();
    let by_distance = known.iter().map(|other| (strsim::damerau_levenshtein(&name, other), *other)).min();
    by_distance.filter(|(distance, other)| *distance <= 1 + other.len() / 4).map(|(_, nearest)| nearest)
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn suggests_the_nearest_name_or_lists_all() {
        assert_eq!(
            explain("unknown field `limt`, expected one of `name`, `limit`"),
            "there is no field `limt`; did you mean `limit`?"
        );
        assert_eq!(
            explain("unknown variant `banana`, expected `enforce` or `shadow`"),
            "`banana` is not possible here; possible are enforce, shadow"
        );
        assert!(
            explain("unknown field `000/s`, expected one of `name`, `limit`").contains("write 5_000/s, or use quotes")
        );
        assert_eq!(explain("missing field `key`"), "the field `key` is missing");
        assert_eq!(
            explain("invalid type: string \"x\", expected u16"),
            "string \"x\" is not possible here; write a whole number from 0 to 65535"
        );
    }
}
