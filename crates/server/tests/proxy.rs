//! `tollkeeper proxy` as people run it: the binary between raw sockets, so that every byte on both sides is seen.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "proxy/world.rs"]
mod world;

#[path = "proxy/commands.rs"]
mod commands;
#[path = "proxy/costs.rs"]
mod costs;
#[path = "proxy/failures.rs"]
mod failures;
#[path = "proxy/forwarding.rs"]
mod forwarding;
#[path = "proxy/limits.rs"]
mod limits;
#[path = "proxy/smuggling.rs"]
mod smuggling;
#[path = "proxy/streaming.rs"]
mod streaming;
#[path = "proxy/waiting.rs"]
mod waiting;
