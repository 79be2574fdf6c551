//! `tollkeeper simulate`: traffic that is described in a few lines, against rules, in virtual time.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tollkeeper::Rule;
use tollkeeper_tune::{Paint, Scenario, simulate, write_page};

use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use crate::config::Document;
use crate::privacy::Privacy;
use crate::settings;

/// Simulate clients against rules: steady traffic, bursts, scrapers, and clients that honour or ignore Retry-After
#[derive(Debug, clap::Args)]
#[command(after_help = "A scenario (YAML):
  for: 10min
  traffic:
    - { name: people,  clients: 200, rate: 5/min }                           # at random times
    - { name: app,     clients: 20,  rate: 1/s, shape: bursts, retries: honour }
    - { name: scraper, rate: 20/s, shape: steady, from: 2min, until: 6min, retries: hammer }
Shapes: random, steady, bursts, together, diurnal. Retries: never, honour, hammer.
Each client has its own `ip` and `user_id`; `attributes` adds others.

Examples:
  tollkeeper simulate                                       the built-in scenario against built-in rules
  tollkeeper simulate scenario.yaml -c rules.yaml
  tollkeeper simulate scenario.yaml -c rules.yaml --svg picture.svg --html report.html
  tollkeeper simulate --print-default > scenario.yaml       start from the built-in one")]
pub(super) struct Args {
    /// The scenario; by default the built-in one
    #[arg(value_name = "FILE", env = "TOLLKEEPER_SCENARIO")]
    scenario: Option<PathBuf>,
    /// The rules (YAML); by default 60/min with a burst of 20 by address, and 80/s for all
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_CONFIG")]
    config: Option<PathBuf>,
    /// Write a picture of each group over time
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_SVG")]
    svg: Option<PathBuf>,
    /// Write the report as a self-contained HTML page
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_HTML")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
    /// Print the built-in scenario instead
    #[arg(long, env = "TOLLKEEPER_PRINT_DEFAULT", value_parser = clap::builder::FalseyValueParser::new())]
    print_default: bool,
}

const SCENARIO: &str = include_str!("simulate/scenario.yaml");
const RULES: &str = "rules:
  - { name: per-address, key: '{ip}', limit: 60/min, burst: 20 }
  - { name: everybody, key: global, limit: 80/s, burst: 80 }";

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut out = std::io::stdout().lock();
    if args.print_default {
        out.write_all(SCENARIO.as_bytes())?;
        return Ok(Ending::Fine);
    }
    let loaded = match &args.config {
        Some(path) => ConfigArgs { config: Some(path.clone()) }.load_with_rules()?,
        None => settings::parse(Path::new("(built-in rules)"), RULES)?,
    };
    operations::warn(&loaded);
    let (path, text) = match &args.scenario {
        Some(path) => (path.as_path(), settings::read_text(path)?),
        None => (Path::new("(built-in scenario)"), SCENARIO.to_owned()),
    };
    let scenario: Scenario = Document::parse(path, &text)?.read()?;
    let privacy = Privacy::new(&loaded.config.identify);
    let shown = |rule: &Rule, variant: u16, key: &str| privacy.shown_key(rule, variant, key).into_owned();
    let simulated = simulate(&scenario, loaded.policy, &shown).with_context(|| format!("{}", path.display()))?;
    if let Some(path) = &args.svg {
        std::fs::write(path, simulated.picture()).with_context(|| format!("{}", path.display()))?;
    }
    if let Some(path) = &args.html {
        let mut file = std::fs::File::create(path).with_context(|| format!("{}", path.display()))?;
        write_page(&simulated.report, &mut file).with_context(|| format!("{}", path.display()))?;
    }
    if args.json {
        serde_json::to_writer(&mut out, &simulated)?;
        writeln!(out)?;
    } else {
        let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        write!(out, "{}", simulated.summary(if colours { Paint::Colours } else { Paint::Plain }))?;
    }
    Ok(Ending::Fine)
}
