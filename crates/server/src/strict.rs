//! Reads what comes from outside: JSON bodies, query strings and columns of a table.
//!
//! A type says what it takes by deriving `Deserialize`; this module says what is wrong. Every mistake is named with its
//! place, its value and what to do. Unknown names, names given twice and values of another type are refused.

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
