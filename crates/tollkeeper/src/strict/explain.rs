//! serde's messages in plain English: what is wrong with a value, and the nearest valid name or type.

#[cfg(feature = "file")]
use super::similar::nearest;
use super::similar::{suggestion, unknown};
use super::text::{quoted, shortened};

pub(crate) const MISSING: &str = "is missing";

/// What is wrong, and which member of the place that serde names, if not that place itself.
pub fn explain(message: &str) -> (Option<&str>, String) {
    if let Some((name, expected)) = after(message, "unknown field `") {
        // `{ limit: 5,000/s }` is two fields to YAML.
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return (None, "is not known; inside { } a comma ends a value: write 5_000/s, or use quotes".into());
        }
        return (None, unknown(name, &names_in(expected)));
    }
    if let Some((name, expected)) = after(message, "unknown variant `") {
        return (None, format!("{} is not known{}", quoted(name), suggestion(name, &names_in(expected))));
    }
    if let Some((name, _)) = after(message, "missing field `") {
        return (Some(name), MISSING.into());
    }
    if let Some((name, _)) = after(message, "duplicate field `") {
        return (Some(name), "is given twice; leave one out".into());
    }
    let mismatch = ["invalid type: ", "invalid value: "].iter().find_map(|start| message.strip_prefix(start));
    match mismatch.and_then(|mismatch| mismatch.rsplit_once(", expected ")) {
        Some((found, expected)) => (None, format!("must be {}, not {}", type_name(expected), plain(found))),
        None => (None, message.to_string()),
    }
}

/// The known field that an unknown one is probably meant to be.
#[cfg(feature = "file")]
pub(crate) fn meant(message: &str) -> Option<&str> {
    let (name, expected) = after(message, "unknown field `")?;
    nearest(name, &names_in(expected))
}

/// A name in backquotes, and what follows it.
fn after<'m>(message: &'m str, start: &str) -> Option<(&'m str, &'m str)> {
    let rest = message.strip_prefix(start)?;
    rest.split_once("`, ").or_else(|| Some((rest.strip_suffix('`')?, "")))
}

fn names_in(expected: &str) -> Vec<&str> {
    expected.split('`').skip(1).step_by(2).collect()
}

fn type_name(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" | "i64" => "a whole number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        expected if expected.starts_with("struct ") => "an object with named fields",
        other => other,
    }
}

/// A value as people would call it.
fn plain(found: &str) -> String {
    let scalar = ["integer `", "floating point `", "boolean `"].iter().find_map(|start| found.strip_prefix(start));
    if let Some(scalar) = scalar.and_then(|scalar| scalar.strip_suffix('`')) {
        // `1e+20` and `3.0` as a user may have written them.
        let number = scalar.contains(['.', 'e']).then(|| scalar.parse::<f64>().ok()).flatten();
        return number.map_or_else(|| scalar.to_string(), |number| number.to_string());
    }
    if let Some(text) = found.strip_prefix("string \"").and_then(|text| text.strip_suffix('"')) {
        return format!("\"{}\"", shortened(text));
    }
    match found {
        "sequence" => "a list".into(),
        "map" => "an object".into(),
        "unit value" => "null".into(),
        found => found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_name_or_lists_all() {
        let said = |message| explain(message).1;
        assert_eq!(
            said("unknown field `limt`, expected one of `name`, `limit`"),
            "is not known; did you mean `limit`?"
        );
        assert_eq!(said("unknown field `rule`, there are no fields"), "is not known; nothing can be given here");
        assert_eq!(
            said("unknown variant `banana`, expected `enforce` or `shadow`"),
            "\"banana\" is not known; use one of enforce, shadow"
        );
        assert!(
            said("unknown field `000/s`, expected one of `name`, `limit`").contains("write 5_000/s, or use quotes")
        );
        assert_eq!(explain("missing field `key`"), (Some("key"), "is missing".into()));
        assert_eq!(explain("duplicate field `key`"), (Some("key"), "is given twice; leave one out".into()));
        assert_eq!(
            said("invalid type: string \"x\", expected u16"),
            "must be a whole number from 0 to 65535, not \"x\""
        );
        assert_eq!(said("invalid type: floating point `1.5`, expected u64"), "must be a whole number, not 1.5");
        assert_eq!(
            said("invalid type: sequence, expected struct Config"),
            "must be an object with named fields, not a list"
        );
        assert_eq!(said("something else"), "something else");
    }
}
