//! Errors about input in plain English: the place, the value and what to do.
//!
//! For the rules file, rules in Postgres and the service; not part of the API.

mod explain;
mod invalid;
mod json;
mod object;
mod similar;
mod text;

pub use explain::explain;
pub use invalid::Invalid;
pub use json::{json, value};
pub use object::Object;
pub use similar::{nearest, suggestion, unknown};
pub use text::{quoted, shortened};
