//! `tollkeeper man`: the manual pages, from the same texts as `--help`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Command;
use clap_mangen::Man;

use super::ending::Ending;

/// Print a manual page, or write all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper man | man -l -                                read it now
  tollkeeper man serve | man -l -                          the page of a command
  tollkeeper man --output /usr/local/share/man/man1        install them all")]
pub struct Args {
    /// The command, such as `serve` or `rules diff`; the program itself without one
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// The folder to write all pages to, as tollkeeper.1, tollkeeper-serve.1 and so on
    #[arg(long, short, value_name = "FOLDER", env = "TOLLKEEPER_MAN_OUTPUT", conflicts_with = "command")]
    output: Option<PathBuf>,
}

pub fn run(args: Args, mut cli: Command) -> anyhow::Result<Ending> {
    // Gives every command its whole name.
    cli.build();
    if let Some(folder) = args.output {
        clap_mangen::generate_to(cli, &folder).with_context(|| format!("cannot write to {}", folder.display()))?;
        return Ok(Ending::Fine);
    }
    let mut command = &cli;
    for name in &args.command {
        let Some(found) = command.find_subcommand(name) else {
            let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            bail!("there is no command `{name}`{}", crate::strict::suggestion(name, &known));
        };
        command = found;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    std::io::stdout().lock().write_all(&page)?;
    Ok(Ending::Fine)
}
