//! `tollkeeper completions`: a script with which a shell completes commands and flags.

use std::io::Write as _;

use clap_complete::Shell;

use super::ending::Ending;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(tollkeeper completions bash)                              in this shell
  tollkeeper completions bash > ~/.local/share/bash-completion/completions/tollkeeper
  tollkeeper completions zsh > ~/.zfunc/_tollkeeper                  a folder of $fpath
  tollkeeper completions fish > ~/.config/fish/completions/tollkeeper.fish
  tollkeeper completions powershell >> $PROFILE")]
pub struct Args {
    /// The shell
    shell: Shell,
}

pub fn run(args: Args, mut cli: clap::Command) -> anyhow::Result<Ending> {
    // Written at once: the generator panics if the reader has gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "tollkeeper", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Ending::Fine)
}
