//! Real proxies in front of the service: what they ask it, and what clients behind them can spoof, in one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod envoy;
mod forward_auth;
mod site;
mod spoofing;
