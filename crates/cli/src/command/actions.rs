//! `tollkeeper actions`: what people did to single keys, as a running service knows it.

use serde_json::Value;

use super::client::ServiceArgs;
use super::ending::Ending;
use super::table::{missing, print, table};
use crate::background::block_on;

/// Show who blocked, allowed, granted, lifted or reset a key
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper actions                                       the last hundred
  tollkeeper actions --rule per-user --key 42              everything done to one key
  tollkeeper actions --action block --since 24h --json     a day's blocks, for scripts

Newest first. RULE is * for an action on every rule that has this key. BY shows the name given with --as.")]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// Only this: block, allow, grant, lift or reset
    #[arg(long, env = "TOLLKEEPER_ACTION")]
    action: Option<String>,
    /// Only for this rule; * for actions on every rule
    #[arg(long, value_name = "NAME", env = "TOLLKEEPER_RULE")]
    rule: Option<String>,
    /// Only for this key; a secret is found by its value or by its fingerprint
    #[arg(long, env = "TOLLKEEPER_KEY")]
    key: Option<String>,
    /// Only since then: `1h` for an hour ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", env = "TOLLKEEPER_SINCE")]
    since: Option<String>,
    /// Only before then
    #[arg(long, value_name = "TIME", env = "TOLLKEEPER_UNTIL")]
    until: Option<String>,
    /// The maximum number, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100, env = "TOLLKEEPER_ACTIONS_LIMIT")]
    limit: u32,
    /// Print the JSON of the HTTP API
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Ending> {
    let limit = args.limit.to_string();
    let parameters = [
        ("limit", Some(limit.as_str())),
        ("action", args.action.as_deref()),
        ("rule", args.rule.as_deref()),
        ("key", args.key.as_deref()),
        ("since", args.since.as_deref()),
        ("until", args.until.as_deref()),
    ];
    let answer = block_on(args.service.get("/v1/actions", &parameters))??;
    print(&answer, args.json, shown)
}

const COLUMNS: [(&str, &str); 9] = [
    ("AT", "at"),
    ("ACTION", "action"),
    ("RULE", "rule"),
    ("KEY", "key"),
    ("KEY BY", "key_by"),
    ("LIMIT", "limit"),
    ("UNTIL", "until"),
    ("BY", "by"),
    ("REASON", "reason"),
];

fn shown(answer: &Value) -> String {
    table(&COLUMNS, &answer["actions"]) + &missing(answer, "action")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_shows_each_and_what_is_missing() {
        let answer = json!({
            "actions": [{"at": "2026-01-01T00:00:00.000Z", "action": "grant", "rule": "login", "key": "42", "key_by": "user_id",
                "limit": "9/s", "until": null, "by": "ann (loopback)", "reason": "trial\u{1b}[2J"}],
            "dropped": 2,
        });
        let text = shown(&answer);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("AT ") && lines[0].ends_with("REASON"), "{text}");
        assert!(
            lines[1].ends_with("grant   login  42   user_id  9/s    -      ann (loopback)  trial\u{fffd}[2J"),
            "{text}"
        );
        assert_eq!(lines[2], "2 actions missing: they could not be stored");
    }
}
