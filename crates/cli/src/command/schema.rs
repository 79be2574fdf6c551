//! `tollkeeper schema`: the configuration file as JSON Schema.

use std::io::Write as _;

use super::ending::Ending;
use crate::config::Config;

/// Print the JSON Schema of the configuration file, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  tollkeeper schema > tollkeeper.schema.json
  # then, as the first line of tollkeeper.yaml:
  # yaml-language-server: $schema=./tollkeeper.schema.json")]
pub struct Args {}

pub fn run(_: Args) -> anyhow::Result<Ending> {
    let schema = schemars::schema_for!(Config);
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&schema)?)?;
    Ok(Ending::Fine)
}
