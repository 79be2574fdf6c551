//! Parses input from outside: JSON bodies, query strings and columns of a table.
//!
//! A type derives `Deserialize` to say what it accepts; this module words the errors. Every error names its place,
//! the value and what to do. Unknown names, duplicate names and values of another type are refused.

mod explain;
mod invalid;
mod json;
mod query;
mod similar;
mod text;
mod tree;
mod value;

pub(crate) use explain::explain;
pub(crate) use invalid::Invalid;
pub(crate) use json::{json, value};
pub(crate) use query::query;
pub(crate) use similar::{nearest, suggestion};
pub(crate) use text::{quoted, shortened};
pub(crate) use tree::Tree;
pub(crate) use value::{Filled, Note, Object, Whole, given, parsed};

#[cfg(test)]
mod tests;
