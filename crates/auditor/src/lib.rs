//! Judges from the outside whether a rate limiter kept its limit.
//!
//! The auditor knows when each request was sent, when its answer came, and whether it was admitted. It knows nothing
//! about how the limiter works, shares no code with it, and does not ask it anything. The decision was made somewhere
//! between sending and answer, so a request counts for an interval only if both lie inside it: what the auditor calls
//! a violation is one, whatever the network did.
//!
//! How much may pass is published in `docs/guide/bounds.md`. [`Bounds::read`] parses that table, so what is
//! documented is what is checked.

mod bounds;
mod interval;

pub use bounds::{Bound, Bounds, UnreadableTable};
pub use interval::{Audit, Event, Limit, Observation, audit};
