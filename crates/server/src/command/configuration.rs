//! `--config FILE`, and what is read from it before a command starts.

use std::path::PathBuf;

use tollkeeper::HeaderStyle;

use super::source;
use crate::config::ConfigError;
use crate::settings::{self, Loaded};

/// `--config FILE`, or the built-in default.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    /// The configuration file (YAML); by default the built-in example
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_CONFIG")]
    pub(super) config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Loads the file, and the current rules from wherever they are.
    pub(super) fn load_with_rules(&self) -> anyhow::Result<Loaded> {
        let mut loaded = self.load()?;
        source::read_once(&mut loaded)?;
        Ok(loaded)
    }

    pub(super) fn load(&self) -> Result<Loaded, ConfigError> {
        match &self.config {
            Some(path) => settings::load(path),
            None => settings::load_embedded(),
        }
    }
}

/// A style of limit headers by its name.
pub(super) fn header_style(text: &str) -> Result<HeaderStyle, String> {
    let names: Vec<&str> = HeaderStyle::ALL.iter().map(|(_, name)| *name).collect();
    match HeaderStyle::ALL.iter().find(|(_, name)| *name == text) {
        Some((style, _)) => Ok(*style),
        None => Err(format!("there is no header style `{text}`{}", crate::strict::suggestion(text, &names))),
    }
}
