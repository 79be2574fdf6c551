//! Files of envoyproxy/ratelimit as rules: their decisions, the differences, and what is refused.

mod lookup;
mod reference;

use std::io::Write as _;
use std::process::{Output, Stdio};

use proptest::prelude::*;
use serde_json::{Value, json};
use tollkeeper_testkit::{Folder, file, tollkeeper};

fn import(text: &str) -> (Option<i32>, String, String) {
    let output = tollkeeper(&["import", "envoy-ratelimit", &file(text, "yaml")]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Imported rules that `validate` accepts.
struct Rules(String);

impl Rules {
    fn of(text: &str) -> Rules {
        let (code, rules, report) = import(text);
        assert_eq!(code, Some(0), "{report}");
        let config = file(&rules, "yaml");
        let validated = tollkeeper(&["validate", &config]).output().unwrap();
        assert!(validated.status.success(), "{}\n{rules}", String::from_utf8_lossy(&validated.stderr));
        Rules(config)
    }

    /// For each descriptor in turn, a microsecond apart: the rules that applied, and whether it passed.
    fn decide(&self, domain: &str, descriptors: &[&[(&str, &str)]]) -> Vec<(String, bool)> {
        let event = |(at, entries): (usize, &&[(&str, &str)])| {
            let shape: Vec<&str> = entries.iter().map(|(key, _)| *key).collect();
            let mut attributes = json!({ "domain": domain, "descriptor": shape.join(",") });
            for (key, value) in entries.iter() {
                // As the gRPC front names the second and third entry of a key.
                let numbered = (2..).map(|number| format!("{key}#{number}"));
                let mut names = std::iter::once(key.to_string()).chain(numbered);
                let free = names.find(|name| attributes.get(name).is_none()).unwrap();
                attributes[free] = json!(value);
            }
            json!({ "at_us": 1_767_225_600_000_000_u64 + at as u64, "attributes": attributes }).to_string()
        };
        let events: Vec<String> = descriptors.iter().enumerate().map(event).collect();
        let output = self.replay(&events.join("\n"));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| decided(&serde_json::from_str(line).unwrap())).collect()
    }

    fn replay(&self, events: &str) -> Output {
        let mut child = tollkeeper(&["replay", "--config", &self.0])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(events.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

fn decided(line: &Value) -> (String, bool) {
    let names = line["rules"].as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap());
    (names.collect::<Vec<_>>().join(" "), line["allowed"].as_bool().unwrap())
}

#[test]
fn depth_must_match_exactly() {
    let rules = Rules::of(include_str!("import/messaging.yaml"));
    let marketing: &[_] = &[("message_type", "marketing"), ("to_number", "1")];
    let (number, other): (&[_], &[_]) = (&[("to_number", "1")], &[("to_number", "2")]);
    let nested = "messaging.message_type_marketing.to_number";
    let flat = "messaging.to_number";
    let asked = [marketing; 6].into_iter().chain([number, number, number, other]).collect::<Vec<_>>();
    let expected = [(nested, true); 5].into_iter().chain([(nested, false), (flat, true), (flat, true), (flat, false)]);
    let expected: Vec<_> = expected.chain([(flat, true)]).map(|(rule, allowed)| (rule.to_string(), allowed)).collect();
    assert_eq!(rules.decide("messaging", &asked), expected);
    let nothing = vec![(String::new(), true)];
    assert_eq!(rules.decide("elsewhere", &[number]), nothing);
    assert_eq!(rules.decide("messaging", &[&[("message_type", "marketing")]]), nothing);
    assert_eq!(rules.decide("messaging", &[&[("message_type", "news"), ("to_number", "1")]]), nothing);
    assert_eq!(rules.decide("messaging", &[&[("to_number", "1"), ("message_type", "marketing")]]), nothing);
    assert_eq!(rules.decide("messaging", &[&[("message_type", "marketing"), ("to_number", "1"), ("x", "y")]]), nothing);
}

#[test]
fn exact_values_come_before_prefixes_and_those_before_the_key() {
    let rules = Rules::of(include_str!("import/edge.yaml"));
    let address = |value: &'static str, times: usize| {
        let entry: &[(&str, &str)] = &[("remote_address", value)];
        rules.decide("edge_proxy", &vec![entry; times])
    };
    let all = |rule: &str, passed: &[bool]| passed.iter().map(|passed| (rule.to_string(), *passed)).collect::<Vec<_>>();
    assert_eq!(address("8.8.8.8", 4), all("edge_proxy.remote_address", &[true, true, true, false]));
    assert_eq!(address("50.0.0.5", 2), all("edge_proxy.remote_address_50.0.0.5", &[false, false]));
    assert_eq!(address("10.0.0.1", 9), all("", &[true; 9]));
    assert_eq!(address("10.0.0.2", 3), all("internal", &[true, true, false]));
    assert_eq!(address("203.0.113.7", 9), all("", &[true; 9]));
    // Each value of a prefix has its own bucket, unless they share one.
    let in_turn = |values: [&'static str; 3]| {
        let entries = values.map(|value| [("remote_address", value)]);
        rules.decide("edge_proxy", &entries.iter().map(|entry| &entry[..]).collect::<Vec<_>>())
    };
    assert_eq!(in_turn(["10.1.1.1", "10.1.1.2", "10.1.1.3"]), all("internal", &[true; 3]));
    let shared = "edge_proxy.remote_address_192.168.-";
    assert_eq!(in_turn(["192.168.0.1", "192.168.0.2", "192.168.0.3"]), all(shared, &[true, true, false]));
}

#[test]
fn repeated_keys_shadows_and_odd_values_are_kept() {
    let rules = Rules::of(include_str!("import/edge.yaml"));
    let twice = |entries: &[(&str, &str)]| rules.decide("edge_proxy", &[entries, entries]);
    let both = |rule: &str, second: bool| vec![(rule.to_string(), true), (rule.to_string(), second)];
    let v1 = "edge_proxy.generic_key_api.generic_key_v1";
    assert_eq!(twice(&[("generic_key", "api"), ("generic_key", "v1")]), both(v1, true), "a shadow never denies");
    let other = "edge_proxy.generic_key_api.generic_key";
    assert_eq!(twice(&[("generic_key", "api"), ("generic_key", "v2")]), both(other, false));
    assert_eq!(twice(&[("generic_key", "web"), ("generic_key", "v2")]), both("", true));
    assert_eq!(twice(&[("status", "404")]), both("edge_proxy.status_404", false));
    assert_eq!(twice(&[("odd", r"!a*b\c")]), both("edge_proxy.odd_-a-b-c", false));
    assert_eq!(
        twice(&[("odd", r"!aXb\c")]),
        both("edge_proxy.odd_-a-b-c", false),
        "a star is a wildcard wherever it is"
    );
    assert_eq!(twice(&[("odd", r"!aXb")]), both("", true));
}

#[test]
fn what_differs_is_named_with_its_place() {
    let (code, rules, report) = import(include_str!("import/differences.yaml"));
    assert_eq!(code, Some(0), "{report}");
    for expected in [
        ":4:22: descriptors[0].detailed_metric: is dropped",
        ":8:22: descriptors[1].value_to_metric: is dropped",
        ":9:15: descriptors[1].metadata: is dropped",
        ":15:11: descriptors[1].rate_limit.replaces[0]: `per user` stays in force",
        ":18:17: descriptors[2].rate_limit: has no requests_per_unit",
        ":20:18: descriptors[3].shadow_mode: has no effect",
        ": descriptors[3].descriptors[0].rate_limit.requests_per_unit: has no effect",
        ": descriptors[4].key: entries of `path_prefix` can match this in the reference service",
        ": descriptors[5].value: never matches: `path_p*` before it matches every value",
        ": descriptors[6].rate_limit.requests_per_unit: becomes 4294967294",
        ": descriptors[7].share_threshold: a limit that Envoy sends with a descriptor counts in the shared bucket",
        "6 rules, 12 differences",
        "always: a call that is denied charges nothing",
    ] {
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
    assert!(rules.contains("name: \"per-user\"") && rules.contains("mode: quota"), "{rules}");
}

#[test]
fn what_the_reference_service_refuses_is_refused_with_its_place() {
    let cases = [
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limits: {}\n",
            ":4:5: descriptors[0].rate_limits: is not known",
        ),
        ("domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: dya, requests_per_unit: 1 }\n", ":4:25: "),
        ("domain: d\ndescriptors:\n  - key: a\n    rate_limit: { requests_per_unit: 1 }\n", "`unit` is missing"),
        ("domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unlimited: true, unit: day }\n", "beside `unlimited`"),
        (
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, requests_per_unit: -1 }\n",
            "requests_per_unit",
        ),
        ("domain: ''\n", "domain: is empty"),
        ("descriptors: []\n", "domain: is missing"),
        ("domain: d\ndescriptors:\n  - key: ''\n", "every descriptor has a key"),
        ("domain: d\ndescriptors:\n  - key: a,b\n", "contains ','"),
        ("domain: d\ndescriptors: [{ key: a, value: b }, { key: a, value: b }]\n", "a second `a_b`"),
        (
            "domain: d\ndescriptors: [{ key: a, value: b, share_threshold: true }]\n",
            "share_threshold: needs a value with a star",
        ),
        ("domain: [\n", "cannot be imported"),
    ];
    for (text, expected) in cases {
        let (code, rules, report) = import(text);
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
        assert_eq!((code, rules.as_str()), (Some(1), ""), "{report}");
    }
    let missing = tollkeeper(&["import", "envoy-ratelimit", "no-such-file.yaml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn the_rules_go_where_they_are_wanted() {
    let (source, output) = (file(include_str!("import/messaging.yaml"), "yaml"), file("", "yaml"));
    let imported = tollkeeper(&["import", "envoy-ratelimit", &source, "--output", &output]).output().unwrap();
    assert!(imported.status.success() && imported.stdout.is_empty());
    assert!(std::fs::read_to_string(output).unwrap().contains("rules:\n  - name: "));
}

/// The reference service reads a folder of files, each with a domain of its own.
#[test]
fn a_folder_is_imported_as_a_whole() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let path = folder.path().display().to_string();
    let import = |more: &[&str]| {
        let output = tollkeeper(&[&["import", "envoy-ratelimit", &path], more].concat()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, report) = import(&[]);
    assert!(code == Some(2) && report.contains("no .yaml or .yml file"), "{report}");
    write("b.yaml", include_str!("import/messaging.yaml"));
    write("a.yml", include_str!("import/edge.yaml"));
    write("notes.txt", "not a configuration");
    let (code, rules, report) = import(&[]);
    assert_eq!(code, Some(0), "{report}");
    let place = |name: &str| rules.find(name).unwrap_or_else(|| panic!("no {name} in {rules}"));
    assert!(place("name: \"edge_proxy.") < place("name: \"messaging."));
    write(
        "c.yaml",
        "domain: messaging\ndescriptors: [{ key: from, rate_limit: { unit: day, requests_per_unit: 1 } }]\n",
    );
    let (code, _, report) = import(&[]);
    assert!(code == Some(1) && report.contains("c.yaml:1:9: domain: `messaging` is also the domain of"), "{report}");
    let (code, rules, report) = import(&["--merge-domains"]);
    assert!(code == Some(0) && rules.contains("messaging.from") && rules.contains("messaging.to_number"), "{report}");
    write("d.yaml", "domain: messaging\ndescriptors: [{ key: from }]\n");
    let (code, _, report) = import(&["--merge-domains"]);
    assert!(code == Some(1) && report.contains("`from` is in"), "{report}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// The rule of the limit that the reference service finds applies, and no other.
    #[test]
    fn every_descriptor_meets_the_limit_that_the_reference_service_finds(
        tree in lookup::trees(), descriptors in lookup::descriptors(),
    ) {
        let rules = Rules::of(&lookup::yaml(&tree));
        let asked: Vec<&[(&str, &str)]> = descriptors.iter().map(Vec::as_slice).collect();
        let applied: Vec<String> = rules.decide("d", &asked).into_iter().map(|(rule, _)| rule).collect();
        let expected: Vec<String> = asked.iter().map(|entries| lookup::look_up(&tree, entries).unwrap_or_default()).collect();
        prop_assert_eq!(applied, expected, "{:?}\n{}", descriptors, lookup::yaml(&tree));
    }
}
