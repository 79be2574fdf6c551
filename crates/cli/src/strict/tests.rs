use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    item: Filled,
    #[serde(default, deserialize_with = "given")]
    count: Option<Whole<1, 9>>,
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    size: u16,
}

fn json_error(text: &str) -> String {
    json::<Order>(text.as_bytes(), r#"{"item": "tea"}"#).expect_err(text).to_string()
}

fn query_error(text: &str) -> String {
    query::<Order>(Some(text), "ask for example ?item=tea").expect_err(text).to_string()
}

#[test]
fn every_mistake_in_json_is_named_with_its_place() {
    for (text, said) in [
        ("", r#"there is nothing here; send for example {"item": "tea"}"#),
        ("{", "this is not JSON: EOF while parsing an object"),
        ("[]", r#"must be an object, not a list; send for example {"item": "tea"}"#),
        (r#"["tea"]"#, "must be an object, not a list"),
        ("{}", r#"item: is missing; send for example {"item": "tea"}"#),
        (r#"{"item": 1}"#, "item: must be a string, not 1"),
        (r#"{"item": ""}"#, "item: is empty; give it a value"),
        (r#"{"item": "a", "item": "b"}"#, "item: is given twice; leave one out"),
        (r#"{"item": "a", "cuont": 1}"#, "cuont: is not known; did you mean `count`?"),
        (r#"{"item": "a", "count": null}"#, "count: must be a whole number from 1 to 9, not null"),
        (r#"{"item": "a", "count": 10.0}"#, "count: must be a whole number from 1 to 9, not 10"),
        (r#"{"item": "a", "count": "1"}"#, "count: must be a whole number from 1 to 9, not \"1\""),
        (r#"{"item": "a", "parts": [{"size": 1}, {}]}"#, "parts[1].size: is missing"),
        (r#"{"item": "a", "parts": [{"size": -1}]}"#, "parts[0].size: must be a whole number from 0 to 65535, not -1"),
    ] {
        let error = json_error(text);
        assert!(error.starts_with(said), "{text}: {error}");
    }
    // A text that looks like serde_json's suffix is kept.
    assert_eq!(json_error(r#"{"item": "a", "count": " at line 3"}"#).matches(" at line 3").count(), 1);
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let order: Order = json(br#"{"item": "tea", "count": 3.0}"#, "").expect("an order");
    assert_eq!(order.count, Some(Whole(3)));
}

#[test]
fn a_query_is_read_as_strictly_as_a_body() {
    let order: Order = query(Some("count=3&item=green+tea%2C%20loose&"), "").expect("an order");
    assert_eq!((order.item.0.as_str(), order.count), ("green tea, loose", Some(Whole(3))));
    for (text, said) in [
        ("", "item: is missing; ask for example ?item=tea"),
        ("item", "item: is empty"),
        ("item=a&item=b", "item: is given twice"),
        ("item=a&cuont=1", "cuont: is not known; did you mean `count`?"),
        ("item=a&count=0", "count: must be a whole number from 1 to 9, not 0"),
        ("item=a&count=%2B1", "count: must be a whole number from 1 to 9, not \"+1\""),
        ("item=%ff", "item: is not UTF-8"),
        ("%ff=a", "is not UTF-8"),
    ] {
        let error = query_error(text);
        assert!(error.starts_with(said), "{text}: {error}");
    }
}

#[test]
fn a_tree_has_no_name_twice() {
    let tree = |text: &'static str| json::<Tree>(text.as_bytes(), "").map(|Tree(value)| value.to_string());
    assert_eq!(tree(r#"{"a": {"b": 1.0}}"#), Ok(r#"{"a":{"b":1}}"#.into()));
    assert_eq!(tree(r#"{"a": {"b": 1, "b": 2}}"#), Err(Invalid::new("a.b", "is given twice; leave one out")));
}

#[test]
fn what_comes_from_outside_is_repeated_only_in_part() {
    let name = "é".repeat(30_000);
    let invalid = json::<Order>(format!(r#"{{"{name}": 1}}"#).as_bytes(), "").expect_err("unknown");
    assert_eq!(invalid.field, format!("{}…", "é".repeat(60)));
    let value = json::<Order>(format!(r#"{{"item": "a", "count": "{name}"}}"#).as_bytes(), "").expect_err("a text");
    assert!(value.problem.len() < 300, "{value}");
}
