//! `tollkeeper proxy` as people run it: the binary between raw sockets, so that every byte on both sides is seen.

mod commands;
mod costs;
mod failures;
mod forwarding;
mod identity;
mod limits;
mod reuse;
mod smuggling;
mod streaming;
mod waiting;
mod ways;
pub(crate) mod world;
