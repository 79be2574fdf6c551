//! Rules in a real Postgres: the binary as a service that follows them, as a command that changes them, and both when
//! the database fails.

mod changing;
mod command;
mod earlier;
mod following;
mod trouble;
mod world;
