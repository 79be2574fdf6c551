//! The addon behind the npm package `tollkeeper`. Every decision is made by the library; here is only what JavaScript needs to
//! ask for it. The classes that people use are written in JavaScript (`lib/`) over these functions.
//!
//! Loading it starts nothing: the one thread that talks to Redis begins with the first request that needs it. Verdicts and
//! decisions cross over as plain values, because objects with finalizers pile up in loops that never return to the event loop.

#![cfg_attr(test, allow(dead_code, reason = "the tests are in JavaScript, and nothing is exported to them here"))]
#![allow(unreachable_pub, reason = "what is exported to JavaScript has to be public")]

mod answers;
mod clock;
mod errors;
mod hold;
mod keyed;
mod layer;
mod limiter;
mod quota;
mod verdict;
