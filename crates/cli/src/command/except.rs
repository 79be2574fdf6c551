//! `tollkeeper block`, `allow`, `grant`, `lift`, `exceptions` and `reset`: single keys of a running service.

use std::io::Write as _;

use anyhow::bail;
use http::Method;
use serde_json::{Map, Value, json};
use tollkeeper::parse_span;

use super::client::{Reply, ServiceArgs, escaped};
use super::ending::Ending;
use super::visible::visible;
use crate::background::block_on;

/// Which key, of which rule.
#[derive(Debug, clap::Args)]
struct Target {
    /// The rule's name; by default every rule that has this key
    #[arg(long, value_name = "NAME", default_value = "*", env = "TOLLKEEPER_RULE")]
    rule: String,
    /// The key, as shown in the answer to a check
    #[arg(long, value_name = "KEY", env = "TOLLKEEPER_KEY")]
    key: String,
    /// The attribute that the key is for, where the rule's key has alternatives such as {api_key|ip}; by default ip
    /// for an address, and the only other alternative for anything else
    #[arg(long, value_name = "ATTRIBUTE", env = "TOLLKEEPER_KEY_BY")]
    by: Option<String>,
}

/// For how long, why, and by whom.
#[derive(Debug, clap::Args)]
struct Terms {
    /// For how long, such as 90s, 30min, 12h or 7d; without end by default
    #[arg(long = "for", value_name = "TIME", env = "TOLLKEEPER_FOR", conflicts_with = "until")]
    lasting: Option<String>,
    /// Until when, such as 2030-01-31T12:00:00Z or 2030-01-31T13:00:00+01:00
    #[arg(long, value_name = "MOMENT", env = "TOLLKEEPER_UNTIL")]
    until: Option<String>,
    /// The reason, for the audit
    #[arg(long, value_name = "TEXT", env = "TOLLKEEPER_REASON")]
    reason: Option<String>,
    #[command(flatten)]
    who: Who,
}

/// Which service, and how to print its answer.
#[derive(Debug, clap::Args)]
struct ServerArgs {
    #[command(flatten)]
    service: ServiceArgs,
    /// Print the answer as JSON
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

impl ServerArgs {
    fn ask(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Reply> {
        block_on(self.service.ask(method, path, body))?
    }
}

/// Who does it.
#[derive(Debug, clap::Args)]
struct Who {
    /// Your name, for the audit; your user name by default
    #[arg(long = "as", value_name = "NAME", env = "TOLLKEEPER_AS")]
    name: Option<String>,
}

impl Who {
    /// As the last parameter of a query, with the separator before it.
    fn after(&self, separator: char) -> String {
        let name = self.name.clone().or_else(|| whoami::username().ok()).unwrap_or_default();
        format!("{separator}as={}", escaped(&name))
    }
}

/// What `block` and `allow` need to know.
#[derive(Debug, clap::Args)]
struct ExceptionArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    server: ServerArgs,
}

/// Deny every request of a key for a while
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper block --rule per-user --key 42 --for 1h --reason scraper
  tollkeeper block --key 203.0.113.9                               on every rule with this key, until it is lifted

Exit status: 0 success, 1 refused, 2 usage error or failure.")]
pub struct BlockArgs {
    #[command(flatten)]
    exception: ExceptionArgs,
}

/// Exempt a key from a rule: its requests pass and are not charged
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper allow --rule per-ip --key 198.51.100.7 --for 2h --reason \"load test\"
  tollkeeper allow --rule per-client --key k-123 --by header.x-api-key        where the rule's key is {header.x-api-key|ip}

Exit status: 0 success, 1 refused, 2 usage error or failure.")]
pub struct AllowArgs {
    #[command(flatten)]
    exception: ExceptionArgs,
}

/// Give a key its own limit for a while
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper grant --rule per-user --key 42 --limit 1000/min --burst 200 --for 7d --reason \"trial\"

Usage is carried over when the grant begins and when it ends.
Exit status: 0 success, 1 refused, 2 usage error or failure.")]
pub struct GrantArgs {
    #[command(flatten)]
    target: Target,
    /// The limit, as in a rules file
    #[arg(long, value_name = "LIMIT", env = "TOLLKEEPER_GRANT_LIMIT")]
    limit: String,
    /// The burst; the count of the limit by default
    #[arg(long, value_name = "N", env = "TOLLKEEPER_GRANT_BURST")]
    burst: Option<u32>,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    server: ServerArgs,
}

/// End the exception of a key
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper lift --rule per-user --key 42

Exit status: 0 lifted, 1 there was no exception, 2 usage error or failure.")]
pub struct LiftArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    server: ServerArgs,
}

/// Show the exceptions in force
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper exceptions
  tollkeeper exceptions --server http://10.0.0.5:8080 --json")]
pub struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Clear what a key has used
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper reset --rule per-user --key 42

Exit status: 0 success, 1 there is no such rule, 2 usage error or failure.")]
pub struct ResetArgs {
    /// The rule's name
    #[arg(long, value_name = "NAME", env = "TOLLKEEPER_RULE")]
    rule: String,
    /// The key, as shown in the answer to a check
    #[arg(long, value_name = "KEY", env = "TOLLKEEPER_KEY")]
    key: String,
    /// The attribute that the key is for, where the rule's key has alternatives such as {api_key|ip}
    #[arg(long, value_name = "ATTRIBUTE", env = "TOLLKEEPER_KEY_BY")]
    by: Option<String>,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn block(args: BlockArgs) -> anyhow::Result<Ending> {
    args.exception.put("block")
}

pub fn allow(args: AllowArgs) -> anyhow::Result<Ending> {
    args.exception.put("allow")
}

pub fn grant(args: GrantArgs) -> anyhow::Result<Ending> {
    let mut more = Map::from_iter([("limit".to_string(), json!(args.limit))]);
    more.extend(args.burst.map(|burst| ("burst".to_string(), json!(burst))));
    put("grant", &args.target, &args.terms, &args.server, more)
}

impl ExceptionArgs {
    fn put(&self, kind: &str) -> anyhow::Result<Ending> {
        put(kind, &self.target, &self.terms, &self.server, Map::new())
    }
}

fn put(
    kind: &str,
    target: &Target,
    terms: &Terms,
    server: &ServerArgs,
    mut body: Map<String, Value>,
) -> anyhow::Result<Ending> {
    let mut set = |name: &str, value: Value| _ = body.insert(name.to_string(), value);
    set("rule", json!(target.rule));
    set("key", json!(target.key));
    set("kind", json!(kind));
    if let Some(by) = &target.by {
        set("by", json!(by));
    }
    if let Some(text) = &terms.lasting {
        match parse_span(text) {
            Ok(span) => set("for_ms", json!(span.as_millis_ceil())),
            Err(error) => bail!("--for: {error}"),
        }
    }
    if let Some(until) = &terms.until {
        set("until", json!(until));
    }
    if let Some(reason) = &terms.reason {
        set("reason", json!(reason));
    }
    let answer =
        server.ask(Method::PUT, &format!("/v1/exceptions{}", terms.who.after('?')), Some(Value::Object(body)))?;
    report(server, answer, |made| (shown(made), Ending::Fine))
}

pub fn lift(args: LiftArgs) -> anyhow::Result<Ending> {
    let path = named("/v1/exceptions", &args.target.rule, &args.target.key, &args.target.by) + &args.who.after('&');
    let answer = args.server.ask(Method::DELETE, &path, None)?;
    let Target { rule, key, .. } = &args.target;
    report(&args.server, answer, |answer| match answer["lifted"].as_bool() {
        Some(true) => (format!("lifted: {rule} {key}"), Ending::Fine),
        _ => (format!("there is no exception for {rule} {key}"), Ending::No),
    })
}

pub fn list(args: ListArgs) -> anyhow::Result<Ending> {
    let answer = args.server.ask(Method::GET, "/v1/exceptions", None)?;
    report(&args.server, answer, |answer| {
        let lines: Vec<String> = answer["exceptions"].as_array().into_iter().flatten().map(shown).collect();
        (if lines.is_empty() { "there are none".into() } else { lines.join("\n") }, Ending::Fine)
    })
}

pub fn reset(args: ResetArgs) -> anyhow::Result<Ending> {
    let path = named("/v1/keys", &args.rule, &args.key, &args.by) + &args.who.after('&');
    let answer = args.server.ask(Method::DELETE, &path, None)?;
    report(&args.server, answer, |answer| {
        let was_used = answer["reset"].as_bool() == Some(true);
        let what = if was_used { "reset" } else { "there was nothing to clear" };
        (format!("{what}: {} {}", args.rule, args.key), Ending::Fine)
    })
}

/// Prints the answer for people, or as JSON.
fn report(server: &ServerArgs, answer: Reply, say: impl FnOnce(&Value) -> (String, Ending)) -> anyhow::Result<Ending> {
    match answer {
        Reply::Done(answer) => {
            let (text, ending) = say(&answer);
            writeln!(std::io::stdout(), "{}", if server.json { answer.to_string() } else { text })?;
            Ok(ending)
        }
        Reply::Refused(reason) => {
            writeln!(std::io::stderr(), "error: {reason}")?;
            Ok(Ending::No)
        }
    }
}

/// `block per-user 42 by user_id until 2030-01-31T12:00:00.000Z (scraper)`.
fn shown(exception: &Value) -> String {
    let text = |name: &str| exception[name].as_str().unwrap_or_default();
    let mut line = format!("{} {} {}", text("kind"), text("rule"), text("key"));
    if let Some(by) = exception["by"].as_str() {
        line.push_str(&format!(" by {by}"));
    }
    if let Some(limit) = exception["limit"].as_str() {
        line.push_str(&format!(" {limit}"));
    }
    if let Some(burst) = exception["burst"].as_u64() {
        line.push_str(&format!(" burst {burst}"));
    }
    match exception["until"].as_str() {
        Some(until) => line.push_str(&format!(" until {until}")),
        None => line.push_str(" until it is lifted"),
    }
    if let Some(reason) = exception["reason"].as_str() {
        line.push_str(&format!(" ({reason})"));
    }
    // The texts are from other people.
    visible(&line)
}

fn named(path: &str, rule: &str, key: &str, by: &Option<String>) -> String {
    let by = by.as_ref().map(|by| format!("&by={}", escaped(by))).unwrap_or_default();
    format!("{path}?rule={}&key={}{by}", escaped(rule), escaped(key))
}
