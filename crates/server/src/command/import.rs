//! `tollkeeper import`: the configuration of another rate limiter as rules, and what differs.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::ending::Ending;
use crate::import::envoy_ratelimit;
use crate::settings;
use crate::words::counted;

/// Convert the configuration of another rate limiter to rules
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, clap::Subcommand)]
enum From {
    /// A YAML file of envoyproxy/ratelimit
    EnvoyRatelimit(FileArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper import envoy-ratelimit config.yaml > tollkeeper.yaml
  tollkeeper import envoy-ratelimit config.yaml --output tollkeeper.yaml && tollkeeper validate tollkeeper.yaml

Differences in meaning are reported on standard error, with the line in the file.
Exit status: 0 imported, 1 the file is not valid, 2 usage error or failure.")]
struct FileArgs {
    /// The file to import
    file: PathBuf,
    /// The file to write the rules to; standard output by default
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_OUTPUT")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let From::EnvoyRatelimit(FileArgs { file, output }) = args.from;
    let text = settings::read_text(&file)?;
    let imported = match envoy_ratelimit(&file, &text) {
        Ok(imported) => imported,
        Err(error) => {
            writeln!(std::io::stderr(), "{error}\n{} cannot be imported", file.display())?;
            return Ok(Ending::No);
        }
    };
    let mut report = std::io::stderr().lock();
    for difference in &imported.differences {
        writeln!(report, "differs: {difference}")?;
    }
    // The result must be valid; a limit that is too large to count exactly is not.
    let loaded = match settings::parse(&file.with_extension("imported"), &imported.yaml) {
        Ok(loaded) => loaded,
        Err(error) => {
            let problems = error.problems.iter().map(|problem| format!("{}: {}", file.display(), problem.problem));
            writeln!(report, "{}", problems.collect::<Vec<_>>().join("\n"))?;
            return Ok(Ending::No);
        }
    };
    match output {
        Some(path) => {
            std::fs::write(&path, &imported.yaml).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => std::io::stdout().lock().write_all(imported.yaml.as_bytes())?,
    }
    let (rules, differences) = (loaded.policy.rules().len(), imported.differences.len());
    let (rules, differences) = (counted(rules as u64, "rule"), counted(differences as u64, "difference"));
    writeln!(report, "imported {}: {rules}, {differences}", file.display())?;
    Ok(Ending::Fine)
}
