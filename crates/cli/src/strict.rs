//! Parses input from outside: JSON bodies, query strings and columns of a table.
//!
//! A type derives `Deserialize` to say what it accepts; this module words the errors. Every error names its place,
//! the value and what to do. Unknown names, duplicate names and values of another type are refused.

mod query;
mod tree;
mod value;

pub use query::query;
pub use tollkeeper::strict::{Invalid, Object, json, nearest, quoted, shortened, suggestion, value};
pub use tree::Tree;
pub use value::{Filled, Note, Whole, given, parsed};

#[cfg(test)]
mod tests;
