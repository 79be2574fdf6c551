//! Rules in a real Postgres: the binary as a service that follows them, as a command that changes them, and both in trouble.

mod changing;
mod command;
mod following;
mod trouble;
mod world;
