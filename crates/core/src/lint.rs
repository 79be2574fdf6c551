//! Rules that are valid and probably not what was meant.
//!
//! Each warning says what the rule does as written, and how to write what was probably meant.

use crate::condition::Condition;
use crate::network::Network;
use crate::quota::Algorithm;
use crate::rule::{Cost, LeaseSize, Rule, RuleError};
use crate::rule_spec::{MatchValue, OneOrMany};

/// What fronts for HTTP fill in.
const OF_HTTP: [&str; 4] = ["ip", "method", "path", "host"];

/// What follows these is chosen by the client.
const OF_CLIENTS: [&str; 3] = ["header.", "query.", "cookie."];

/// Attributes by which people limit. As a key without braces they are a slip.
const IDENTITIES: [&str; 20] = [
    "ip",
    "user",
    "user_id",
    "userid",
    "api_key",
    "apikey",
    "key",
    "tenant",
    "tenant_id",
    "account",
    "account_id",
    "client",
    "client_id",
    "customer",
    "org",
    "session",
    "email",
    "path",
    "method",
    "host",
];

impl Rule {
    /// What is valid but probably a mistake, each with how to write what was probably meant.
    pub fn warnings(&self) -> Vec<RuleError> {
        warnings(self)
    }
}

fn warnings(rule: &Rule) -> Vec<RuleError> {
    let mut found = Vec::new();
    let mut warn = |field: &str, problem: String| found.push(RuleError { field: field.into(), problem });
    of_numbers(rule, &mut warn);
    of_cost(rule, &mut warn);
    if let Some(problem) = of_key(rule) {
        warn("key", problem);
    }
    for name in only_excluded(rule) {
        let problem = format!(
            "`{{{name}}}` is named only in an excluded path, so no request has it; name it in a path that matches"
        );
        warn("key", problem);
    }
    for (attribute, value) in &rule.spec().when {
        let field = format!("when.{attribute}");
        if let Some(problem) = of_attribute(attribute) {
            warn(&field, problem);
        }
        let values = match value {
            OneOrMany::One(value) => std::slice::from_ref(value),
            OneOrMany::Many(values) => values,
        };
        for text in values.iter().filter_map(MatchValue::to_text) {
            if let Some(problem) = of_value(attribute, text.strip_prefix('!').unwrap_or(&text)) {
                warn(&field, problem);
            }
        }
    }
    found
}

fn of_numbers(rule: &Rule, warn: &mut impl FnMut(&str, String)) {
    let (spec, quota) = (rule.spec(), rule.quota());
    let algorithm = quota.algorithm();
    if spec.burst.is_some() && !algorithm.has_burst() {
        warn("burst", format!("has no meaning for {algorithm}; remove it"));
    }
    if spec.hold.is_some() && algorithm != Algorithm::Concurrency {
        warn("hold", format!("has no meaning for {algorithm}; remove it"));
    }
    let limit = spec.limit.to_text();
    if let Some((count, period)) = limit.split_once('/')
        && algorithm == Algorithm::Concurrency
    {
        let (count, period) = (count.trim(), period.trim());
        let hold = if period.starts_with(|c: char| c.is_ascii_digit()) { period.into() } else { format!("1{period}") };
        warn(
            "limit",
            format!(
                "{limit:?} is a rate, but concurrency limits how many requests are in flight; write `limit: {count}`, \
                 and `hold: {hold}` if unreleased slots should expire after that"
            ),
        );
    }
    if matches!(rule.lease(), Some(LeaseSize::Tokens(tokens)) if tokens > quota.limit() / 2) {
        warn("lease", format!("leaves little of {} to the other instances; use `auto`", quota.limit()));
    }
}

fn of_cost(rule: &Rule, warn: &mut impl FnMut(&str, String)) {
    let limit = rule.quota().limit();
    match rule.cost() {
        Cost::Fixed(0) => warn("cost", "0 charges nothing, so this rule never denies".into()),
        Cost::Carried { otherwise: cost, .. } | Cost::Fixed(cost) if *cost > limit => {
            warn("cost", format!("{cost} is above the limit of {limit}, so nothing ever passes"));
        }
        _ => {}
    }
    for attribute in rule.cost().attributes() {
        if OF_CLIENTS.iter().any(|place| attribute.starts_with(place)) {
            warn(
                "cost",
                format!(
                    "`{attribute}` is chosen by the client, so a client that sends 0 is never limited; let your own \
                     proxy or application send the cost under a name that clients cannot set"
                ),
            );
        }
    }
}

/// Placeholders of the key that only exclusions name.
fn only_excluded(rule: &Rule) -> impl Iterator<Item = &String> {
    let excluded: Vec<&str> = rule.when().iter().flat_map(Condition::excluded_names).collect();
    let named: Vec<&str> = rule.when().iter().flat_map(Condition::names).collect();
    let is_lost = move |name: &&String| excluded.contains(&name.as_str()) && !named.contains(&name.as_str());
    rule.key().needs().flatten().filter(is_lost)
}

/// A key that was meant to be a placeholder, and is the same text for everybody.
fn of_key(rule: &Rule) -> Option<String> {
    if rule.key().needs().next().is_some() {
        return None;
    }
    let written = rule.spec().key.as_str();
    let name = written.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_marked = name.len() < written.len() && !name.is_empty() && is_attribute(name);
    let is_known = IDENTITIES.contains(&written) || OF_CLIENTS.iter().any(|place| written.starts_with(place));
    (is_marked || is_known || rule.when().iter().any(|condition| condition.attribute() == written)).then(|| {
        format!(
            "{written:?} is the same for every request, so all requests share one bucket; write \"{{{name}}}\" for \
             one bucket per value, or \"global\" for a single bucket"
        )
    })
}

fn is_attribute(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn of_attribute(attribute: &str) -> Option<String> {
    let lower = attribute.to_ascii_lowercase();
    (lower != attribute && OF_HTTP.contains(&lower.as_str()))
        .then(|| format!("no request has `{attribute}`: names are compared exactly; write `{lower}`"))
}

/// A pattern that no value of this attribute matches, or that looks like another notation.
fn of_value(attribute: &str, pattern: &str) -> Option<String> {
    // `10.*` and `*.example.*` are globs.
    let starts_segment = |sign: &str| pattern.starts_with(sign) || pattern.contains(&format!("/{sign}"));
    let signs = ["\\d", "\\w", "\\/", "[0-9", "[a-z", "[^", "(?", ")$"];
    if pattern.starts_with('^')
        || pattern.ends_with('$')
        || signs.iter().any(|sign| pattern.contains(sign))
        || starts_segment(".*")
        || starts_segment(".+")
    {
        let glob = pattern.trim_start_matches('^').trim_end_matches('$').replace(".*", "*").replace(".+", "*");
        return Some(format!(
            "{pattern:?} looks like a regular expression, but patterns are globs, in which only * is special; write \
             for example {glob:?}"
        ));
    }
    if let Some(named) = with_colons(pattern) {
        return Some(format!("{pattern:?} is compared literally; write {named:?} for a segment of any text"));
    }
    if !pattern.starts_with('/') && !pattern.contains('\\') && pattern.contains('{') && pattern.contains('}') {
        let glob = replace_braces(pattern);
        return Some(format!(
            "{pattern:?} is compared literally, because only whole segments of a path can be named; write {glob:?}"
        ));
    }
    match attribute {
        "path" if !pattern.starts_with(['/', '*']) => {
            Some(format!("{pattern:?} never matches, because a path starts with a slash; write \"/{pattern}\""))
        }
        "method" if pattern.chars().any(|c| c.is_ascii_lowercase()) => {
            let upper = pattern.to_ascii_uppercase();
            Some(format!("{pattern:?} never matches, because methods are upper case; write {upper}"))
        }
        "ip" if !pattern.contains('*') && !is_address(pattern) => {
            Some(format!("{pattern:?} is not an address; write for example 192.0.2.7, or 10.0.0.0/8 for a network"))
        }
        _ => None,
    }
}

/// `/users/{id}` for `/users/:id`.
fn with_colons(pattern: &str) -> Option<String> {
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic()) && is_attribute(name);
    let named = |segment: &str| match segment.strip_prefix(':').filter(|name| is_name(name)) {
        Some(name) => format!("{{{name}}}"),
        None => segment.to_string(),
    };
    let path = pattern.split('/').map(named).collect::<Vec<_>>().join("/");
    (pattern.starts_with('/') && path != pattern).then_some(path)
}

/// `*.example.com` for `{tenant}.example.com`.
fn replace_braces(pattern: &str) -> String {
    let (mut glob, mut rest) = (String::new(), pattern);
    while let Some((before, after)) = rest.split_once('{') {
        glob.push_str(before);
        glob.push('*');
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    glob + rest
}

fn is_address(pattern: &str) -> bool {
    pattern.parse::<std::net::IpAddr>().is_ok() || matches!(Network::read(pattern), Some(Ok(_)))
}

#[cfg(test)]
mod tests {
    use crate::quota::Algorithm;
    use crate::rule::Rule;
    use crate::rule_spec::RuleSpec;

    /// The findings of people who wrote rules that were valid and never applied, or put everybody into one bucket.
    #[test]
    fn what_people_wrote_and_did_not_mean_is_a_warning_with_the_fix() {
        let keyed = |key: &str| Rule::new("r").key(key).limit("10/s");
        let when = |attribute: &str, pattern: &str| keyed("{ip}").when(attribute, pattern);
        let concurrent = keyed("{ip}").limit("3/s").algorithm(Algorithm::Concurrency);
        let cases: Vec<(RuleSpec, &str)> = vec![
            (
                keyed("ip"),
                "key: \"ip\" is the same for every request, so all requests share one bucket; write \
                           \"{ip}\"",
            ),
            (keyed("user_id"), "write \"{user_id}\""),
            (keyed("$user_id"), "write \"{user_id}\""),
            (keyed("{{user_id}}"), "write \"{user_id}\""),
            (keyed("header.x-api-key"), "write \"{header.x-api-key}\""),
            (keyed("plan").when("plan", "free"), "write \"{plan}\""),
            (
                when("path", "^/api/.*$"),
                "when.path: \"^/api/.*$\" looks like a regular expression, but patterns are globs",
            ),
            (when("path", "^/api/.*$"), "write for example \"/api/*\""),
            (when("path", "api/*"), "write \"/api/*\""),
            (when("method", "post"), "write POST"),
            (
                when("Method", "POST"),
                "when.Method: no request has `Method`: names are compared exactly; write `method`",
            ),
            (when("path", "/u/:id/x"), "write \"/u/{id}/x\""),
            (when("host", "{t}.example.com"), "write \"*.example.com\""),
            (keyed("{id}").when("path", "!/u/{id}"), "key: `{id}` is named only in an excluded path"),
            (when("ip", "10.0.0"), "is not an address"),
            (when("ip", "10.0.0/8"), "is not an address"),
            (
                concurrent,
                "limit: \"3/s\" is a rate, but concurrency limits how many requests are in flight; write `limit: 3`, \
                 and `hold: 1s`",
            ),
            (keyed("{ip}").cost("header.x-cost"), "cost: `header.x-cost` is chosen by the client"),
        ];
        for (spec, expected) in cases {
            let warnings = spec.clone().build().expect("valid").warnings();
            let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            assert!(told.iter().any(|told| told.contains(expected)), "{spec:?} says {told:?}");
        }
    }

    #[test]
    fn what_cannot_work_is_an_error_with_the_fix() {
        let error = |attribute: &str, pattern: &str| {
            let spec = Rule::new("r").key("{ip}").limit("10/s").when(attribute, pattern);
            spec.build().expect_err(pattern).to_string()
        };
        assert!(error("user_id", "!*").contains("write null for a request without this attribute"));
        assert!(error("ip", "10.0.0.1/8").contains("write 10.0.0.0/8"));
        assert!(error("ip", "!10.0.0.0/40").contains("between 0 and 32"));
        assert!(error("path", "/users/{id:[0-9]+}").contains("is not a name"));
        // The key `{id}` was never found, and the rule never applied.
        let paths = Rule::new("r").key("{id}").limit("10/s").when("path", ["/u/{id}", "/v/*"]);
        assert!(paths.build().expect_err("two kinds").to_string().contains("name different segments"));
    }

    #[test]
    fn good_rules_are_not_warned_about() {
        let good = [
            Rule::new("a").key("global").limit("10/s"),
            Rule::new("b").key("everybody").limit("10/s").when("path", ["/api/*", "*.json", "!/api/health"]),
            Rule::new("c").key("{id}").limit("0.5/s").when("path", "/users/{id}/**"),
            Rule::new("d")
                .key("{ip}")
                .limit("10/s")
                .when("ip", ["10.0.0.0/8", "!10.1.0.0/16", "192.0.2.1", "192.168.1.*"]),
            Rule::new("e").key("user:{user_id}").limit("10/s").when("method", ["GET", "POST"]),
            Rule::new("f").key("{ip}").limit("3").algorithm(Algorithm::Concurrency).hold("30s"),
        ];
        for spec in good {
            assert_eq!(spec.clone().build().expect("valid").warnings(), [], "{spec:?}");
        }
    }
}
