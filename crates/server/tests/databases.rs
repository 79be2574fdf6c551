//! The service with a real Postgres: its rules, its audit, and the tables themselves, in one binary.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod audit;
mod database;
mod kept_exceptions;
mod rules;
