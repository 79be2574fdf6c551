//! What the `tollkeeper` command does beside deciding.
//!
//! The configuration file ([`config`]), how bodies and queries are read ([`strict`]), times ([`moment`]), TLS ([`tls`]), tokens
//! ([`tokens`]), outgoing calls ([`outgoing`]), and the commands that need nothing more ([`command`]): those that ask a running
//! service, convert another limiter's file, or print something.
//!
//! A request that is decided spends hardly any time here, so `cargo run --release` builds this crate without optimising it, beside the
//! service (`tollkeeper-server`), which uses it.
//!
//! This crate is a part of the command: its functions may change in any release. Use the `tollkeeper` crate for the limiter.
#![allow(missing_docs, reason = "an internal crate: what is public here is documented where it explains something")]

pub mod background;
pub mod command;
pub mod config;
pub mod import;
pub mod moment;
pub mod network;
pub mod outgoing;
pub mod privacy;
pub mod strict;
pub mod tls;
pub mod tokens;
