//! `tollkeeper import`: the configuration of another rate limiter as rules, and what differs.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::ending::Ending;
use crate::import::{ALWAYS, SameDomain, envoy_ratelimit};
use crate::settings;
use tollkeeper_tune::words::counted;

/// Convert the configuration of another rate limiter to rules
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, clap::Subcommand)]
enum From {
    /// YAML files of envoyproxy/ratelimit
    EnvoyRatelimit(FileArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper import envoy-ratelimit config.yaml > tollkeeper.yaml
  tollkeeper import envoy-ratelimit config.yaml --output tollkeeper.yaml && tollkeeper validate tollkeeper.yaml
  tollkeeper import envoy-ratelimit runtime/ratelimit/config > tollkeeper.yaml      all files of a folder

Differences in meaning are reported on standard error, with the line in the file.
Exit status: 0 imported, 1 the file is not valid, 2 usage error or failure.")]
struct FileArgs {
    /// The files to import, or a folder with them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Files may have the same domain, as with MERGE_DOMAIN_CONFIG
    #[arg(long, env = "TOLLKEEPER_MERGE_DOMAINS")]
    merge_domains: bool,
    /// The file to write the rules to; standard output by default
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_OUTPUT")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let From::EnvoyRatelimit(FileArgs { files, merge_domains, output }) = args.from;
    let mut report = std::io::stderr().lock();
    let named = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let mut sources = Vec::new();
    for path in all(&files)? {
        let text = settings::read_text(&path)?;
        sources.push((path, text));
    }
    let same_domain = if merge_domains { SameDomain::Merged } else { SameDomain::Refused };
    let imported = match envoy_ratelimit(&sources, same_domain) {
        Ok(imported) => imported,
        Err(error) => {
            writeln!(report, "{error}\n{named} cannot be imported")?;
            return Ok(Ending::No);
        }
    };
    for difference in &imported.differences {
        writeln!(report, "differs: {difference}")?;
    }
    // The result must be valid.
    let loaded = match settings::parse(&files[0].with_extension("imported"), &imported.yaml) {
        Ok(loaded) => loaded,
        Err(error) => {
            let problems = error.problems.iter().map(|problem| format!("{named}: {}", problem.problem));
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
    for note in ALWAYS {
        writeln!(report, "always: {note}")?;
    }
    let (rules, differences) = (loaded.policy.rules().len(), imported.differences.len());
    let (rules, differences) = (counted(rules as u64, "rule"), counted(differences as u64, "difference"));
    writeln!(report, "imported {named}: {rules}, {differences}")?;
    Ok(Ending::Fine)
}

/// The files themselves, and those of folders in the order of their names.
fn all(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut found = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
        let is_yaml = |path: &Path| path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        found.retain(|path| is_yaml(path) && path.is_file());
        if found.is_empty() {
            bail!("{}: there is no .yaml or .yml file in this folder", path.display());
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}
