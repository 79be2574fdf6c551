//! The addon behind the npm package `tollkeeper`. The library makes every decision; this module adds what JavaScript
//! needs. The public classes are written in JavaScript (`lib/`) over these functions.
//!
//! Loading it starts nothing: the I/O thread for Redis starts with the first request that needs it. Verdicts and
//! decisions are passed as plain values, because objects with finalizers pile up in loops that never return to the
//! event loop.

#![cfg_attr(test, allow(dead_code, reason = "the tests are in JavaScript, and nothing is exported to them here"))]
#![allow(unreachable_pub, reason = "what is exported to JavaScript has to be public")]

mod answers;
mod call;
mod check;
mod clock;
mod errors;
mod exception;
mod hold;
mod keyed;
mod layer;
mod limiter;
mod quota;
mod record;
mod verdict;
