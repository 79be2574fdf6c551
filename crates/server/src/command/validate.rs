//! `tollkeeper validate`: is a configuration file valid, and if not, where and why.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::json;

use super::ending::Ending;
use super::operations;
use crate::config::DEFAULT;
use crate::settings::{self, Loaded};

/// Check a configuration file: every problem with line, column and a suggestion
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper validate tollkeeper.yaml
  tollkeeper validate --json tollkeeper.yaml | jq '.problems[].line'
  tollkeeper validate --print-default > tollkeeper.yaml     start from the built-in default")]
pub(super) struct Args {
    /// The file to check
    #[arg(required_unless_present = "print_default", env = "TOLLKEEPER_CONFIG")]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
    /// Print the built-in default configuration instead
    #[arg(long, env = "TOLLKEEPER_PRINT_DEFAULT", value_parser = clap::builder::FalseyValueParser::new())]
    print_default: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut out = std::io::stdout().lock();
    let Some(file) = args.file.filter(|_| !args.print_default) else {
        out.write_all(DEFAULT.as_bytes())?;
        return Ok(Ending::Fine);
    };
    match settings::load(&file) {
        Ok(loaded) => {
            if args.json {
                let rules: Vec<_> = loaded.policy.rules().iter().map(|rule| rule.name().to_string()).collect();
                writeln!(out, "{}", json!({ "valid": true, "rules": rules, "warnings": loaded.warnings }))?;
            } else {
                operations::warn(&loaded);
                writeln!(out, "{} is valid: {}", file.display(), summary(&loaded))?;
            }
            Ok(Ending::Fine)
        }
        Err(error) if error.unreadable => Err(error.into()),
        Err(error) => {
            if args.json {
                writeln!(out, "{}", json!({ "valid": false, "problems": error.problems }))?;
            } else {
                let count = error.problems.len();
                let s = if count == 1 { "" } else { "s" };
                writeln!(std::io::stderr(), "{error}\n{} is not valid: {count} problem{s}", file.display())?;
            }
            Ok(Ending::No)
        }
    }
}

/// "4 rules (1 shadow, 1 inactive)"
fn summary(loaded: &Loaded) -> String {
    if loaded.config.rules_from.is_some() {
        return "rules from Postgres".into();
    }
    let rules = loaded.policy.rules();
    let shadow = rules.iter().filter(|rule| rule.is_shadow()).count();
    let annotate = rules.iter().filter(|rule| rule.annotates()).count();
    let inactive = rules.iter().filter(|rule| !rule.is_active()).count();
    let s = if rules.len() == 1 { "" } else { "s" };
    let notes: Vec<String> = [(shadow, "shadow"), (annotate, "annotate"), (inactive, "inactive")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
    format!("{} rule{s}{notes}", rules.len())
}
