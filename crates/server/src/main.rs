//! The `tollkeeper` command. Everything it does is in this crate's library.

use std::process::ExitCode;

#[cfg(any(target_env = "musl", all(feature = "jemalloc", target_os = "linux")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    tollkeeper_server::run()
}
