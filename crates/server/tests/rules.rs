//! Rules in a real Postgres: the binary as a service that follows them, as a command that changes them, and both in trouble.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "rules/changing.rs"]
mod changing;
#[path = "rules/command.rs"]
mod command;
#[path = "rules/following.rs"]
mod following;
mod postgres;
#[path = "rules/trouble.rs"]
mod trouble;
#[path = "rules/world.rs"]
mod world;
