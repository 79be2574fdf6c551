//! The `tollkeeper` command. Everything it does is in this crate's library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollkeeper_server::run()
}
