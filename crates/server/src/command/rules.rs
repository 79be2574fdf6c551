//! `tollkeeper rules`: the rules in Postgres, for people and for pipelines.

mod show;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;
use tollkeeper::{Policy, RuleSpec};

use super::ending::Ending;
use super::operations;
use crate::background::block_on;
use crate::config::ConfigError;
use crate::database::database;
use crate::rules::{Change, Difference, Edit, Edited, RuleTable, RulesError, canonical, yaml};
use crate::settings;

/// See and change the rules in Postgres
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  export TOLLKEEPER_RULES_FROM=postgres://tollkeeper:PASSWORD@127.0.0.1:5432/limits
  tollkeeper rules list
  tollkeeper rules diff tollkeeper.yaml                     what `apply` would change; exit 1 if anything
  tollkeeper rules apply tollkeeper.yaml -m 'double the free plan'
  tollkeeper rules export > tollkeeper.yaml
  tollkeeper rules history --limit 5
  tollkeeper rules rollback 12

Running services pick up a change within a second. The variable keeps the password out of the process list.
Exit status: 0 success, 1 negative result (differences, invalid, refused), 2 usage error or failure.")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// The database with the rules: postgres://USER:PASSWORD@HOST:5432/DATABASE
    #[arg(long, global = true, value_name = "URL", env = "TOLLKEEPER_RULES_FROM", hide_env_values = true)]
    database: Option<String>,
    /// Print JSON
    #[arg(long, global = true, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the current rules
    List,
    /// Replace all rules with those in a file, atomically
    Apply(ApplyArgs),
    /// Show what `apply` would change
    Diff {
        /// A rules file
        file: PathBuf,
    },
    /// Print the rules as a file that `apply` accepts
    Export,
    /// Show who changed what, newest first
    History {
        /// The maximum number of versions
        #[arg(long, value_name = "N", default_value_t = 20, env = "TOLLKEEPER_HISTORY_LIMIT", value_parser = clap::value_parser!(i64).range(1..=1_000))]
        limit: i64,
        /// Only versions before this one
        #[arg(long, value_name = "VERSION", env = "TOLLKEEPER_BEFORE")]
        before: Option<i64>,
    },
    /// Restore the rules of an earlier version, as a new version
    Rollback {
        /// The version to restore
        version: i64,
        #[command(flatten)]
        edit: EditArgs,
    },
}

#[derive(Debug, clap::Args)]
struct ApplyArgs {
    /// A rules file
    file: PathBuf,
    /// Accept a file without rules, which removes them all
    #[arg(long, env = "TOLLKEEPER_ALLOW_EMPTY", value_parser = clap::builder::FalseyValueParser::new())]
    allow_empty: bool,
    #[command(flatten)]
    edit: EditArgs,
}

#[derive(Debug, clap::Args)]
struct EditArgs {
    /// Only show what would change
    #[arg(long, env = "TOLLKEEPER_DRY_RUN", value_parser = clap::builder::FalseyValueParser::new())]
    dry_run: bool,
    /// Your name, for the history; your user name by default
    #[arg(long = "as", value_name = "NAME", env = "TOLLKEEPER_AS")]
    by: Option<String>,
    /// The reason, for the history
    #[arg(long, short, value_name = "TEXT", env = "TOLLKEEPER_MESSAGE")]
    message: Option<String>,
    /// Refuse if the rules are not at this version, because somebody else has changed them
    #[arg(long, value_name = "VERSION", env = "TOLLKEEPER_EXPECT")]
    expect: Option<i64>,
}

impl EditArgs {
    fn edit(self) -> Edit {
        let by =
            self.by.or_else(|| whoami::username().ok()).filter(|by| !by.is_empty()).unwrap_or_else(|| "unknown".into());
        Edit { by, message: self.message, seen: self.expect, dry_run: self.dry_run }
    }
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let url = args.database.context("the database is missing; give --database URL, or TOLLKEEPER_RULES_FROM")?;
    let database = database(&url).map_err(|problem| anyhow::anyhow!("--database: {problem}"))?;
    match block_on(answer(args.verb, RuleTable::new(database), args.json))? {
        Err(error) if is_no(&error) => {
            writeln!(std::io::stderr(), "{error:#}")?;
            Ok(Ending::No)
        }
        ended => ended,
    }
}

/// Whether the answer is no, rather than a failure.
fn is_no(error: &anyhow::Error) -> bool {
    let refused = |error: &RulesError| !matches!(error, RulesError::Database(_) | RulesError::Busy);
    error.downcast_ref::<RulesError>().is_some_and(refused)
        || error.downcast_ref::<ConfigError>().is_some_and(|error| !error.unreadable)
}

async fn answer(verb: Verb, table: RuleTable, json: bool) -> anyhow::Result<Ending> {
    let mut out = std::io::stdout();
    match verb {
        Verb::List => {
            let set = table.read().await?;
            match json {
                true => writeln!(out, "{}", json!({ "version": set.version, "rules": specs(&set.policy) }))?,
                false => write!(out, "{}", show::list(&set))?,
            }
        }
        Verb::Export => {
            let specs = specs(&table.read().await?.policy);
            match json {
                true => writeln!(out, "{}", json!({ "rules": specs }))?,
                false => write!(out, "{}", yaml(&specs))?,
            }
        }
        Verb::Diff { file } => {
            let wanted = settings::load_rules(&file)?.policy;
            let set = table.read().await?;
            let difference = Difference::between(&set.policy, &wanted);
            match json {
                true => writeln!(out, "{}", json!({ "version": set.version, "difference": difference }))?,
                false => write!(out, "{difference}")?,
            }
            return Ok(if difference.is_empty() { Ending::Fine } else { Ending::No });
        }
        Verb::Apply(ApplyArgs { file, allow_empty, edit }) => {
            let loaded = settings::load_rules(&file)?;
            operations::warn(&loaded);
            if loaded.policy.rules().is_empty() && !allow_empty {
                let problem = "has no rules, so every request would pass; add --allow-empty if you mean it";
                writeln!(std::io::stderr(), "{}: {problem}", file.display())?;
                return Ok(Ending::No);
            }
            let edit = edit.edit();
            if !edit.dry_run {
                table.database().migrate().await?;
            }
            let edited = table.edit(&edit, Change::Apply(loaded.policy)).await?;
            report(&mut out, &edit, &edited, json)?;
        }
        Verb::Rollback { version, edit } => {
            let edit = edit.edit();
            let edited = table.edit(&edit, Change::Rollback(version)).await?;
            report(&mut out, &edit, &edited, json)?;
        }
        Verb::History { limit, before } => {
            let versions = table.history(before, limit).await?;
            match json {
                true => writeln!(out, "{}", json!({ "versions": versions }))?,
                false => write!(out, "{}", show::history(&versions))?,
            }
        }
    }
    Ok(Ending::Fine)
}

fn specs(policy: &Policy) -> Vec<RuleSpec> {
    policy.rules().iter().map(|rule| canonical(rule)).collect()
}

fn report(out: &mut impl std::io::Write, edit: &Edit, edited: &Edited, json: bool) -> std::io::Result<()> {
    let Edited { version, changed, difference } = edited;
    if json {
        return writeln!(out, "{}", json!({ "version": version, "changed": changed, "difference": difference }));
    }
    write!(out, "{difference}")?;
    match (changed, edit.dry_run) {
        (_, true) => writeln!(out, "nothing was changed: version {version} stays in force"),
        (true, _) => writeln!(out, "version {version}"),
        (false, _) => writeln!(out, "nothing to do: version {version} is the same"),
    }
}
