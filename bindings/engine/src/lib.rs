//! The engine that the language bindings share.
//!
//! - [`Engine`] is rules over a store. The memory store decides on the caller's thread, without a runtime or another
//!   thread. Redis is connected when it is first needed; answers that need no call (a cached denial, a lease) are
//!   given on the caller's thread too.
//! - [`Mailbox`] collects answers that arrive later, and wakes the host once for many of them.
//! - [`take_lines`] is what the library has logged meanwhile, for the host's own log.
//! - [`Head`] is an HTTP request as hosts know it; [`Checked`] is a verdict with its headers and response.
//!
//! A forked process never uses what its parent started: it opens its own connection when it first needs one.

mod answer;
mod ask;
mod engine;
mod error;
mod exception;
mod fork;
mod hold;
mod io;
mod limit;
mod log;
mod mailbox;
mod notice;
mod remote;
mod request;
mod rules;
mod settings;
mod source;
mod verdict;

pub use ask::{Ask, Progress, Reply, Work};
pub use engine::Engine;
pub use error::{Error, Kind};
pub use exception::End;
pub use fork::generation;
pub use hold::{Estimate, Slots};
pub use limit::{quota, rule};
pub use log::{Level, Line, take_lines};
pub use mailbox::Mailbox;
pub use request::{Head, Needs, Subject};
pub use tollkeeper::file::{Settings, StoreSettings, TlsFiles};
pub use tollkeeper::postgres::Status;
pub use verdict::Checked;
