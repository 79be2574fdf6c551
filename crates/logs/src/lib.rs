//! Access logs as people have them, line by line: [`Format::detect`] looks at a sample, [`Format::read`] turns a line into an [`Entry`].
//!
//! Text formats (nginx, Apache, HAProxy, Envoy, AWS load balancers) are all one thing here: a [`Template`] of variables and the text
//! between them, written as nginx's `log_format` is. JSON formats are a table of the names under which servers log the same field.
//! Nothing is allocated for a line but what its escapes ask for. A bad line is an [`Unreadable`], never a panic.

mod columns;
mod entry;
mod field;
mod format;
mod json;
mod moment;
mod search;
mod template;

pub use entry::Entry;
pub use format::{Format, Unreadable};
pub use moment::Precision;
pub use template::{BadTemplate, Template};
