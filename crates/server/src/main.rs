//! The `tollkeeper` command. Everything that it does is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollkeeper_server::run()
}
