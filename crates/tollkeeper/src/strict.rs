//! Input that is read strictly: unknown fields, wrong types and values out of range are errors that name the field, the
//! value and what to do.
//!
//! The rules file, rules in Postgres, the HTTP API of the service and the packages for Python and Node read their input
//! this way. Use it for your own settings that stand beside ours, so that their errors read alike.
//!
//! ```
//! use tollkeeper::strict;
//!
//! #[derive(Debug, serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Settings {
//!     retries: u8,
//! }
//!
//! let wrong = strict::json::<Settings>(br#"{"retires": 3}"#, r#"{"retries": 3}"#).unwrap_err();
//! assert_eq!(wrong.to_string(), "retires: is not known; did you mean `retries`?");
//! ```

mod explain;
mod invalid;
mod json;
mod object;
mod similar;
mod text;

pub use explain::explain;
#[cfg(feature = "file")]
pub(crate) use explain::meant;
pub use invalid::Invalid;
pub use json::{json, value};
pub use object::Object;
pub use similar::{nearest, suggestion, unknown};
pub use text::{quoted, shortened};
