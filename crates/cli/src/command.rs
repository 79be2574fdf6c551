//! Commands, one file each: those that ask a running service, and those that print something.

pub mod actions;
pub mod client;
pub mod completions;
pub mod draw;
pub mod ending;
pub mod except;
pub mod health;
pub mod man;
pub mod schema;
pub mod signals;
pub mod table;
pub mod top;
pub mod violations;
pub mod visible;
