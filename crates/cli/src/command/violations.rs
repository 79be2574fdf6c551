//! `tollkeeper violations`: who was denied, as a running service knows it.

use std::time::Duration;

use serde_json::Value;

use super::client::ServiceArgs;
use super::ending::Ending;
use super::table::{missing, print, table};
use crate::background::block_on;
use tollkeeper_tune::words::lasting;

/// Show who was denied by a running service
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper violations                                    the last hundred
  tollkeeper violations --since 1h --rule login            of one rule in the last hour
  tollkeeper violations --ip 203.0.113.0/24 --json         of a network, for scripts
  tollkeeper violations --since 2026-01-31T12:00:00Z --until 2026-01-31T13:00:00Z --limit 1000

Newest first. COUNT is the number of denials that a line sums up: a key that is denied often gets one line per second.")]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// Only of this user
    #[arg(long, value_name = "USER", env = "TOLLKEEPER_USER_ID")]
    user_id: Option<String>,
    /// Only of this address, or of a network such as 10.0.0.0/8
    #[arg(long, value_name = "ADDRESS", env = "TOLLKEEPER_IP")]
    ip: Option<String>,
    /// Only by this rule
    #[arg(long, value_name = "NAME", env = "TOLLKEEPER_RULE")]
    rule: Option<String>,
    /// Only of this key; a secret is found by its value or by its fingerprint
    #[arg(long, env = "TOLLKEEPER_KEY")]
    key: Option<String>,
    /// Only since then: `1h` for an hour ago, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", env = "TOLLKEEPER_SINCE")]
    since: Option<String>,
    /// Only before then
    #[arg(long, value_name = "TIME", env = "TOLLKEEPER_UNTIL")]
    until: Option<String>,
    /// The maximum number, up to 1000
    #[arg(long, value_name = "N", default_value_t = 100, env = "TOLLKEEPER_VIOLATIONS_LIMIT")]
    limit: u32,
    /// Continue from `next` of a previous answer
    #[arg(long, env = "TOLLKEEPER_CURSOR")]
    cursor: Option<String>,
    /// Print the JSON of the HTTP API
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<Ending> {
    let limit = args.limit.to_string();
    let parameters = [
        ("limit", Some(limit.as_str())),
        ("user_id", args.user_id.as_deref()),
        ("ip", args.ip.as_deref()),
        ("rule", args.rule.as_deref()),
        ("key", args.key.as_deref()),
        ("since", args.since.as_deref()),
        ("until", args.until.as_deref()),
        ("cursor", args.cursor.as_deref()),
    ];
    let answer = block_on(args.service.get("/v1/violations", &parameters))??;
    print(&answer, args.json, shown)
}

const COLUMNS: [(&str, &str); 10] = [
    ("AT", "at"),
    ("RULE", "rule"),
    ("KEY", "key"),
    ("USER", "user_id"),
    ("IP", "ip"),
    ("ENDPOINT", "endpoint"),
    ("COUNT", "count"),
    ("WAIT", "wait"),
    ("BLOCKED", "blocked"),
    ("MODE", "mode"),
];

fn shown(answer: &Value) -> String {
    let mut violations = answer["violations"].clone();
    for violation in violations.as_array_mut().into_iter().flatten() {
        let wait = violation["retry_after_ms"].as_u64().map(|ms| lasting(Duration::from_millis(ms)));
        violation["wait"] = wait.map_or("never".into(), Value::from);
        violation["blocked"] = block(&violation["blocked"]);
        if violation["mode"] == "enforce" {
            // Only what may have passed is marked.
            violation["mode"] = Value::Null;
        }
    }
    let mut text = table(&COLUMNS, &violations);
    if let Some(next) = answer["next"].as_str() {
        text.push_str(&format!("more with --cursor {next}\n"));
    }
    text + &missing(answer, "denial")
}

/// `until 2026-01-31T12:00:00Z by alice`; empty if the limit denied the request.
fn block(blocked: &Value) -> Value {
    if blocked.is_null() {
        return Value::Null;
    }
    let until = blocked["until"].as_str().map_or_else(|| "no end".to_string(), |until| format!("until {until}"));
    let by = blocked["by"].as_str().map(|by| format!(" by {by}")).unwrap_or_default();
    Value::String(until + &by)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_shows_each_and_what_is_missing_and_moves_no_cursor() {
        let answer = json!({
            "violations": [{"at": "2026-01-01T00:00:00.000Z", "rule": "login", "key": "\u{1b}[2J\u{202e}x", "user_id": null,
                "ip": "203.0.113.9", "endpoint": "POST /login", "count": 12, "retry_after_ms": null, "mode": "annotate",
                "blocked": {"until": null, "by": "alice"}}],
            "next": "7.7", "dropped": 3,
        });
        let text = shown(&answer);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("AT ") && lines[0].ends_with("WAIT   BLOCKED          MODE"), "{text}");
        assert!(
            lines[1].contains(
                "login  \u{fffd}[2J\u{fffd}x  -     203.0.113.9  POST /login  12     never  no end by alice  annotate"
            ),
            "{text}"
        );
        assert_eq!(lines[2], "more with --cursor 7.7");
        assert_eq!(lines[3], "3 denials missing: they could not be stored");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "nor does it turn the line around");
    }
}
