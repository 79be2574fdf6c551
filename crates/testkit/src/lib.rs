//! What Tollkeeper's tests run against: real servers as child processes, a client that sends exact bytes, certificates.
//!
//! Everything that is started here listens on a free port of 127.0.0.1, keeps its files in a temporary folder, and is gone
//! when its handle is dropped. Nothing is skipped: a test whose server cannot be started fails and says what to install.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // A test that cannot go on panics.

mod certificates;
#[cfg(target_os = "linux")]
mod clock;
mod curl;
mod distance;
pub mod http;
mod port;
#[cfg(unix)]
mod postgres;
mod process;
mod program;
pub mod proxy;
mod scratch;
mod service;
pub mod store;
mod wait;

pub use certificates::{Authority, Pair};
#[cfg(target_os = "linux")]
pub use clock::SteppedClock;
pub use curl::curl;
pub use distance::Distance;
pub use port::free_port;
#[cfg(unix)]
pub use postgres::Postgres;
pub use process::Process;
pub use program::{pinned, repository, run, system, tools};
pub use scratch::{Folder, file};
pub use service::{Service, binary, runtime_folder, tollkeeper};
pub use wait::wait_until;
