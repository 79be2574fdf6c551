//! What the Python and Node packages share, so that neither writes it twice.
//!
//! - [`Engine`] is rules over a store. The memory store decides on the caller's thread, with no runtime and no thread. Redis is
//!   connected when it is first needed; what needs no call (a remembered denial, a lease) is decided on the caller's thread too.
//! - [`Mailbox`] collects answers that came later, and wakes the host once for many of them.
//! - [`Head`] is an HTTP request as hosts know it; [`Checked`] is a verdict with the headers and the answer that belong to it.
//!
//! A process that was forked never uses what its parent started: it connects by itself when it first asks.

mod engine;
mod error;
mod fork;
mod hold;
mod io;
mod limit;
mod mailbox;
mod request;
mod settings;
mod verdict;

pub use engine::{Ask, Engine, Progress, Reply, Work};
pub use error::{Error, Kind};
pub use hold::{Estimate, Slots};
pub use limit::{quota, rule};
pub use mailbox::Mailbox;
pub use request::{Head, Needs, Subject};
pub use settings::{Settings, StoreSettings, TlsFiles};
pub use verdict::Checked;
