//! Real proxies before the service: what they ask it, and what clients behind them can pretend, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod envoy;
mod forward_auth;
mod site;
mod spoofing;
